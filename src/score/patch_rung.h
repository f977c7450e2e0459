/* How a patch may be applied, and how it was: words of the wire, shared with Brig's helper. */
#pragma once
#include "base/macros.h"

enum patch_mode { PATCH_REPAIR, PATCH_STRICT, PATCH_LADDER, PATCH_MODE_MAX };
STRING_TABLE_DECLARE(patch_mode);
enum patch_rung { RUNG_NONE, RUNG_STRICT, RUNG_RECOUNT, RUNG_WHITESPACE, RUNG_THREE_WAY, RUNG_FUZZY, RUNG_MAX };
STRING_TABLE_DECLARE(patch_rung);
