/* Brig's helper: runs inside a sandbox's mount and user namespaces, in a PID namespace of its own, for what has to be done
 * with files of a sandbox by code that is ours. Static, so nothing of the sandbox's is loaded.
 *
 * Descriptors: 0, 1, 2 as given; HELPER_ROOT_FD the sandbox's "/", HELPER_BASE_FD the same before anything was written. Paths go
 * through openat2 beneath these, never through the working directory. Everything in the tree is hostile: links, FIFOs,
 * devices, depth, names. argv[0] is the verb. Exit status: the verb's; 64 for one that does not exist. */
#include "helper/verbs.h"

static const struct helper_verb verbs[] = {
        { "apply", verb_apply },
        { "copy-out", verb_copy_out },
        { "changes", verb_changes },
        { "look", verb_look },
        { "files", verb_files },
        { "find-user", verb_find_user },
        { "read-file", verb_read_file },
        { "recheck", verb_recheck },
        { "remove-tree", verb_remove_tree },
        { "results", verb_results },
        { "send", verb_send },
        { "true", verb_true },
        { "unpack", verb_unpack },
        { "wait", verb_wait },
};

int main(int argc, char **argv) {
        for (size_t i = 0; argc > 0 && i < ARRAY_SIZE(verbs); i++) {
                if (strcmp(argv[0], verbs[i].name) == 0)
                        return verbs[i].run(argc, argv);
        }
        fprintf(stderr, "helper: unknown verb\n");
        return 64;
}
