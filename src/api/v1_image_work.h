/* The answer to what takes long and ends in an image: plain, at the end; or as server-sent events while it goes on. */
#pragma once
#include "api/v1_internal.h"
#include "store/image_store.h"

struct image_work;

/* What is known of an image; with its configuration or without. */
void v1_put_image(struct json_writer *w, const struct image *img, bool config);

/* `cancel` runs when the client is gone before the end; after it, and after image_work_done, nothing of the work may be used. NULL: no memory,
 * and the request is answered. */
struct image_work *image_work_new(struct http_request *r, bool stream, void (*cancel)(void *user), void *user);
/* An event, where events are wanted. What cannot be sent, because the client reads too slowly, is left out; how much is said in `dropped`. */
void image_work_event(struct image_work *w, const char *event, struct buf *json);
/* The end: the image (borrowed), or the failure. */
void image_work_done(struct image_work *w, struct image *img, enum image_failure failure, const struct error *e);
/* It did not begin: -EINVAL and others, as v1_fault. */
void image_work_refuse(struct image_work *w, int x, const char *text);
