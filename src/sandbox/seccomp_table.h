/* The policy as data; private to seccomp*.c. */
#pragma once
#include <stdint.h>

/* What happens to a call. An errno is its value; the rest are checks of arguments that answer with one. */
enum seccomp_action {
        ACTION_ALLOW = 0,
        /* 1 to 4095: that errno */
        ACTION_CHECK_CLONE = 4096,  /* CLONE_NEW* in argument 0: EPERM */
        ACTION_CHECK_UNSHARE,       /* the same, and CLONE_NEWTIME */
        ACTION_CHECK_SOCKET,        /* unix, inet, inet6; netlink of three protocols; else EAFNOSUPPORT */
        ACTION_CHECK_SOCKETPAIR,    /* unix only */
        ACTION_CHECK_PERSONALITY,   /* the harmless ones; else EPERM */
        ACTION_CHECK_IOCTL,         /* TIOCSTI, TIOCLINUX, TIOCSETD: EPERM */
};

struct seccomp_rule {
        const char *name;
        int number;                 /* where the library is older than the call; the same on every architecture */
        uint16_t action;
        uint16_t nested;            /* the action for SECCOMP_NESTED */
        uint16_t turn;              /* the action for SECCOMP_TURN where it is another than `action`; else 0 */
};
extern const struct seccomp_rule seccomp_rules[];
extern const unsigned seccomp_rules_n;
