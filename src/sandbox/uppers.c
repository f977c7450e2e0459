/* Uppers on disk made ahead of need: mounted, empty images of the size that was last asked for. Making one takes a few milliseconds in a
 * child of the spawner; taking one takes nothing. They are made while the spawner is idle, one at a time, once a sandbox with
 * such an upper was asked for. An image has no name: it is gone with its last descriptor, whatever ends the spawner. */
#include <fcntl.h>

#include "base/fs.h"
#include "sandbox/spawner.h"

static void drop_all(struct spawn *sp) {
        struct uppers *u = &sp->uppers;
        while (u->n > 0) {
                int fd = u->fd[--u->n];
                if (sweeper_give(sp, 0, &fd, 1) < 0)
                        fd_close(fd);
                else
                        close(fd);
        }
}

static void on_made(struct spawn *sp, struct watch *w, uint32_t events) {
        struct uppers *u = &sp->uppers;
        struct error e;
        int fd = -1;
        watch_stop(sp, w);
        if (layer_job_finish(TAKE_PTR(u->job), &fd, &e) < 0) {
                u->failed = true;      /* whoever asks next makes one himself, and is told why that fails */
                return;
        }
        if (u->making_bytes == u->bytes && u->making_inodes == u->inodes && u->n < UPPERS_WANT)
                u->fd[u->n++] = fd;
        else
                fd_close(fd);
}

bool uppers_fill(struct spawn *sp) {
        struct uppers *u = &sp->uppers;
        if (u->bytes == 0 || u->failed || u->job || u->n >= UPPERS_WANT || !sp->layers)
                return false;
        const struct layer_upper_spec spec = { .bytes = u->bytes, .inodes = u->inodes };
        int r = layer_image_make(sp->layers, &spec, &u->job);
        if (r == 0)
                r = watch_start(sp, &u->watch, layer_job_fd(u->job), EPOLLIN, on_made);
        u->making_bytes = u->bytes;
        u->making_inodes = u->inodes;
        u->failed = r < 0;
        return true;
}

int uppers_take(struct spawn *sp, const struct sandbox_limits *l, uint32_t owner) {
        struct uppers *u = &sp->uppers;
        if (u->bytes != l->disk_bytes || u->inodes != l->inodes) {
                drop_all(sp);
                u->bytes = l->disk_bytes;
                u->inodes = l->inodes;
        }
        u->failed = false;
        if (u->n == 0)
                return -1;
        int fd = u->fd[--u->n];
        if (fchownat(fd, "", owner, owner, AT_EMPTY_PATH) < 0)
                return fd_close(fd);
        return fd;
}

void uppers_end(struct spawn *sp) {
        struct uppers *u = &sp->uppers;
        if (u->job) {
                int fd = -1;
                struct error e;
                watch_stop(sp, &u->watch);
                if (layer_job_finish(TAKE_PTR(u->job), &fd, &e) == 0)
                        fd_close(fd);
        }
        while (u->n > 0)
                fd_close(u->fd[--u->n]);
}
