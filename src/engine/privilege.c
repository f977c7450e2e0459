#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "engine/privilege.h"

void privilege_user(const char *name, uid_t uid, gid_t gid, uid_t *ret_uid, gid_t *ret_gid) {
        struct passwd pw, *found = NULL;
        char text[4096];
        if (name && *name && getpwnam_r(name, &pw, text, sizeof text, &found) == 0 && found && pw.pw_uid != 0) {
                *ret_uid = pw.pw_uid;
                *ret_gid = pw.pw_gid;
        } else {
                *ret_uid = uid;
                *ret_gid = gid;
        }
}

static int capabilities_left(void) {
        struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[2] = { 0 };
        if (syscall(SYS_capget, &head, data) < 0)
                return -errno;
        for (size_t i = 0; i < ARRAY_SIZE(data); i++)
                if (data[i].effective | data[i].permitted | data[i].inheritable)
                        return 1;
        return 0;
}

static int clear_capabilities(void) {
        struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct none[2] = { 0 };
        return syscall(SYS_capset, &head, none) < 0 ? -errno : 0;
}

int privilege_drop(uid_t uid, gid_t gid, struct error *e) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return error_set(e, -errno, "set no-new-privs");
        for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
                if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
                        return error_set(e, -errno, "drop capability %d from the bounding set", cap);
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
                return error_set(e, -errno, "clear the ambient set");
        if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
                return error_set(e, -errno, "become user %u, group %u", (unsigned)uid, (unsigned)gid);
        int r = clear_capabilities();
        if (r == 0)
                r = capabilities_left();
        if (r != 0 || getuid() != uid || geteuid() != uid || getgid() != gid || setuid(0) == 0)
                return error_say(e, -EPERM, "privileges could not be dropped");
        return 0;
}
