/* What every surface's handlers get as `user` of their HTTP server. */
#pragma once
#include <uv.h>

#include "engine/engine.h"
#include "http/server.h"

struct api {
        uv_loop_t *loop;
        struct engine *engine;
        const char *spool_dir;         /* where bodies go that are too long for memory */
        struct http_server *http;      /* the server that serves it; NULL while there is none */
};
