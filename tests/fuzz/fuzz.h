/* What a fuzz target defines; called by libFuzzer, or by replay.c in the normal build. */
#pragma once
#include "base/macros.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
