/* One file's hunks against its text: finds where each belongs, by the rules of a rung, and makes the new text.
 *
 *   RUNG_STRICT      as `git apply`: every byte of the context, nearest place to where the hunk says, start and end of file respected
 *   RUNG_RECOUNT     also line ends of the other kind, a missing last newline, guessed blank context; away from the stated line
 *                    only where the place is the only one
 *   RUNG_WHITESPACE  also other amounts of white space, as `git apply --ignore-whitespace`; the only place
 *   RUNG_THREE_WAY   the hunk's old side is the common ancestor of its new side and the file: merged where their changes do not touch
 *   RUNG_FUZZY       up to PATCH_FUZZ_MAX lines of context at either end left out; the only place
 *
 * Context keeps the bytes of the file. Time is bounded by PATCH_WORK_MAX steps for a whole patch: beyond, -EPERM. */
#pragma once
#include "score/patch.h"
#include "score/patch_rung.h"

#define PATCH_FUZZ_MAX 2u
#define PATCH_WORK_MAX (500u * 1000 * 1000)
#define PATCH_MERGE_WINDOW 200u       /* RUNG_THREE_WAY: lines of the file looked at around the stated place */

/* 0; -EBADMSG when a hunk has no place (e names path and line), -EPERM over a cap, -ENOMEM. *work is spent from. */
int patch_match(const struct patch *p, const struct patch_file *f, enum patch_rung rung, const char *text, size_t len,
                uint64_t *work, char **ret, size_t *ret_len, struct error *e);
