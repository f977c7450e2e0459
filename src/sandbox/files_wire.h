/* Between the helper's verb `files` and the daemon. See helper/files.c. */
#pragma once

#define FILES_HEAD_SIZE 512            /* bytes before the content that read and pack give */
#define FILES_COMMIT_FD 7              /* write: a byte here says that the content was whole */
#define FILES_EXIT_FAILED 3            /* exit status: the answer, or the head, says why */
#define FILES_ANSWER_MAX (8u << 20)    /* bytes of an answer */
