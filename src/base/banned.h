/* Functions that do not compile in Brig, forced in on the command line of every file (meson.build).
 * Each has a bounded or reentrant replacement: buf.h, clock.h, fs.h; processes belong to the spawner. */
#pragma once
#ifndef __ASSEMBLER__     /* embedded files are assembled with the same flags */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Some C libraries make macros of these; clang will not poison a macro. */
#undef strcpy
#undef strcat
#undef strncpy
#undef strncat
#undef sprintf
#undef vsprintf
#undef strtok

#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf strtok atoi atol atof
#pragma GCC poison system popen mktemp tmpnam tempnam gmtime localtime ctime asctime gets

#endif
