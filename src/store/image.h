/* What an image is, as 64 hex digits. For the host image: a fingerprint of os-release, the package database and the identity
 * (device, inode, times) of the directories it is made of. For a directory: its path and identity. Reads a megabyte at
 * most; keeps nothing. */
#pragma once
#include "base/error.h"
#include "base/hash.h"

/* -ENOENT: no such image (a directory that is not there, or a relative path). */
int image_digest(const char *image, char ret_hex[static SHA256_HEX], struct error *e);
