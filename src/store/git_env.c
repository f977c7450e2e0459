#include <string.h>

#include "base/fs.h"
#include "base/strv.h"
#include "store/git_env.h"

extern const unsigned char git_fetch_sh[], git_fetch_sh_end[], git_join_sh[], git_join_sh_end[], git_checkout_sh[], git_checkout_sh_end[],
        git_config[], git_config_end[];

static int memfds[SCRIPT_MAX + 1] = { -1, -1, -1, -1 };

static int memfd_for(int i, const char *name, const unsigned char *from, const unsigned char *to) {
        if (memfds[i] < 0)
                memfds[i] = fs_memfd(name, from, (size_t)(to - from));
        return memfds[i];
}

int git_files(enum git_script script, struct sandbox_file ret[static 2], struct error *e) {
        static const struct { const unsigned char *from, *to; } scripts[SCRIPT_MAX] = {
                { git_fetch_sh, git_fetch_sh_end }, { git_join_sh, git_join_sh_end }, { git_checkout_sh, git_checkout_sh_end },
        };
        int fd = memfd_for((int)script, "script", scripts[script].from, scripts[script].to);
        int config = memfd_for(SCRIPT_MAX, "gitconfig", git_config, git_config_end);
        if (fd < 0 || config < 0)
                return error_set(e, MIN2(fd, config), "make git's files");
        ret[0] = (struct sandbox_file){ .name = "script", .fd = fd, .mode = 0444 };
        ret[1] = (struct sandbox_file){ .name = "gitconfig", .fd = config, .mode = 0444 };
        return 0;
}

char **git_env(const char *const *extra) {
        static const char *const fixed[] = {
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME=/nonexistent",
                "LANG=C.UTF-8",
                "TZ=UTC",
                "GIT_CONFIG_NOSYSTEM=1",
                "GIT_CONFIG_GLOBAL=/run/brig/gitconfig",
                "GIT_ATTR_NOSYSTEM=1",
                "GIT_TERMINAL_PROMPT=0",
                "GIT_ASKPASS=/bin/false",
                "GIT_ALLOW_PROTOCOL=file:git:http:https:ssh",
                NULL,
        };
        char **env = NULL;
        int r = 0;
        for (size_t i = 0; r == 0 && fixed[i]; i++)
                r = strv_push(&env, fixed[i]);
        for (size_t i = 0; r == 0 && extra && extra[i]; i++)
                r = strv_push(&env, extra[i]);
        return r == 0 ? env : strv_free(env);
}

/* What git says behind the reason. */
static const char *const no_reasons[] = { "Please make sure", "and the repository exists", "fatal: Could not read from remote" };

void git_last_words(const char *err, char *ret, size_t size) {
        size_t n = strlen(err), from;
        ret[0] = 0;
        while (n > 0 && ret[0] == 0) {
                while (n > 0 && (err[n - 1] == '\n' || err[n - 1] == '\r' || err[n - 1] == ' '))
                        n--;
                for (from = n; from > 0 && err[from - 1] != '\n'; from--)
                        ;
                bool advice = false;
                for (size_t i = 0; i < ARRAY_SIZE(no_reasons); i++)
                        advice |= strncmp(err + from, no_reasons[i], strlen(no_reasons[i])) == 0;
                if (!advice && n > from) {
                        size_t take = MIN2(n - from, size - 1);
                        memcpy(ret, err + from, take);
                        ret[take] = 0;
                }
                n = from;
        }
        for (char *c = ret; *c; c++)
                if ((unsigned char)*c < ' ' || *c == 0x7f)
                        *c = ' ';
}
