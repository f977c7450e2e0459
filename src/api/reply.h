/* Answers of the executor surface: JSON bodies, errors in its dialect {"error": text}. Where the protocol adds a code it stands
 * beside the text: {"error": text, "code": "queue_full"}. */
#pragma once
#include "http/server.h"

/* What a fault is on the wire. */
struct fault {
        int status;
        const char *code;              /* NULL: the reference's own error, text alone */
        unsigned retry_after_s;        /* 0 = no Retry-After */
};
struct fault fault_of_errno(int r);    /* of a decoder or of the engine */
/* The text for a fault of the engine; decoders bring their own. */
const char *fault_text(int r);

void reply_json(struct http_request *r, int status, const char *body, size_t n);
/* Sends the buffer, or 500 when `x`, the result of writing it, is negative. */
void reply_buf(struct http_request *r, int status, int x, struct buf *b);
void reply_error(struct http_request *r, struct fault f, const char *text);
void reply_not_found(struct http_request *r);
