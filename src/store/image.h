/* What an image is, as 64 hex digits. For the host image: the fingerprint that the spawner took when it made it. For a directory:
 * its path and identity (device, inode, times). */
#pragma once
#include "base/error.h"
#include "base/hash.h"

/* -ENOENT: no such image (a directory that is not there, or a relative path). */
struct spawner;
int image_digest(const struct spawner *sp, const char *image, char ret_hex[static SHA256_HEX], struct error *e);
