/* From the state of an event channel to outcomes and findings. */
#include <sys/wait.h>

#include "base/strv.h"
#include "score/report.h"

/* ---- spelling: an id as the request has it, for the form that the reporter uses -------------------------------- */

struct alias { char *form; const char *id; };
struct aliases { struct alias *at; size_t n; };

static int by_form(const void *a, const void *b) { return strcmp(((const struct alias *)a)->form, ((const struct alias *)b)->form); }

static void aliases_release(struct aliases *a) {
        for (size_t i = 0; i < a->n; i++)
                free(a->at[i].form);
        free(a->at);
}

static int aliases_make(struct aliases *a, const struct framework *f, const char *const *ids) {
        size_t n = strv_len(ids);
        a->at = calloc(n + 1, sizeof(*a->at));
        if (!a->at)
                return -ENOMEM;
        for (; a->n < n; a->n++) {
                a->at[a->n] = (struct alias){framework_canonical(f, ids[a->n]), ids[a->n]};
                if (!a->at[a->n].form)
                        return -ENOMEM;
        }
        qsort(a->at, a->n, sizeof(*a->at), by_form);
        return 0;
}

/* Puts the outcome under every spelling that was asked for, else under the reporter's own. */
static int put(struct test_results *tests, const struct aliases *a, const char *id, enum test_status st) {
        struct alias key = {.form = (char *)(uintptr_t)id};
        const struct alias *hit = a->n ? bsearch(&key, a->at, a->n, sizeof(*a->at), by_form) : NULL;
        if (!hit)
                return test_results_put(tests, id, st);
        while (hit > a->at && strcmp(hit[-1].form, id) == 0)
                hit--;
        int r = 0;
        for (; r == 0 && hit < a->at + a->n && strcmp(hit->form, id) == 0; hit++)
                r = test_results_put(tests, hit->id, st);
        return r;
}

/* ---- outcomes --------------------------------------------------------------------------------------------------- */

/* Does `path` (a file, a directory, a class, a module) hold the test? */
static bool holds(const char *path, const char *form) {
        size_t n = strlen(path);
        return n > 0 && strncmp(form, path, n) == 0 && (!form[n] || form[n] == '/' || form[n] == '.' || strncmp(form + n, "::", 2) == 0);
}

/* What a test is that was not collected: its file may have been broken, or skipped as a whole. */
static enum test_status uncollected(const struct report *r, const char *form) {
        for (size_t k = 0; k < r->n_paths; k++)
                if (holds(r->paths[k].path, form))
                        return r->paths[k].broken ? TEST_ERROR : TEST_SKIPPED;
        return TEST_MISSING;
}

/* Ids that were asked for, by the request or by the command, and not reported; or reported from elsewhere while their own file was broken. One of the request that is missing is left to the
 * verdict, which knows prefixes. */
static int put_uncollected(const struct report *r, const struct aliases *a, struct test_results *tests) {
        int q = 0;
        for (size_t i = 0; q == 0 && i < a->n; i++) {
                enum test_status st = uncollected(r, a->at[i].form);
                if (st == TEST_ERROR || (st != TEST_MISSING && test_results_get(tests, a->at[i].id) == TEST_MISSING))
                        q = test_results_put(tests, a->at[i].id, st);
        }
        for (size_t i = 0; q == 0 && i < r->missing.n; i++)
                q = put(tests, a, r->missing.items[i].id, uncollected(r, r->missing.items[i].id));
        return q;
}

static int put_outcomes(const struct report *r, const struct framework *f, const char *const *ids, struct test_results *tests) {
        struct aliases a = {0};
        int q = aliases_make(&a, f, ids);
        for (size_t i = 0; q == 0 && i < r->n_tests; i++)
                if (r->tests[i].ended)
                        q = put(tests, &a, r->tests[i].id, r->tests[i].status);
        for (size_t i = 0; q == 0 && i < r->other.n; i++)
                q = put(tests, &a, r->other.items[i].id, r->other.items[i].status);
        for (size_t i = 0; q == 0 && i < r->n_paths; i++)
                if (r->paths[i].broken && r->paths[i].path[0])
                        q = test_results_put(tests, r->paths[i].path, TEST_ERROR);
        /* Without ids nobody else asks for what was collected and then not run. */
        for (size_t i = 0; q == 0 && r->ended && !(ids && *ids) && i < r->n_tests; i++)
                if (!r->tests[i].ended && test_results_get(tests, r->tests[i].id) == TEST_MISSING)
                        q = test_results_put(tests, r->tests[i].id, TEST_MISSING);
        if (q == 0)
                q = put_uncollected(r, &a, tests);
        aliases_release(&a);
        return q;
}

/* ---- findings --------------------------------------------------------------------------------------------------- */

static int add(struct findings *f, enum report_fault kind, enum integrity weight, const char *detail) {
        return findings_add(f, weight, report_fault_to_string(kind), NULL, detail);
}

/* Does the end's status fit its outcomes? The runner's plugins may change it, so this alone convicts nobody. */
static bool status_fits(const struct report *r) {
        bool bad = r->n_bad > 0 || r->other.n > 0 || r->missing.n > 0;
        for (size_t i = 0; i < r->n_paths; i++)
                bad |= r->paths[i].broken;
        if (r->end_status == 0)
                return !bad;
        if (r->end_status == 1)
                return bad;
        return r->end_status != 5 || r->n_events == 0;
}

static int judge_end(const struct report *r, const struct report_exit *x, struct findings *f) {
        char text[160];
        int exited = WIFEXITED(x->status) ? WEXITSTATUS(x->status) : -1, q = 0;
        if (!r->ended) {
                if (x->killed)
                        return 0;
                if (exited >= 0)
                        snprintf(text, sizeof(text), "the runner ended with status %d before its end record", exited);
                else
                        snprintf(text, sizeof(text), "the runner was ended by signal %d before its end record", WTERMSIG(x->status));
                /* Status 0 without an end is somebody's choice; anything else may be a crash. */
                return add(f, FAULT_NO_END_RECORD, exited == 0 ? INTEGRITY_VIOLATED : INTEGRITY_SUSPECT, text);
        }
        if (r->end_tests != r->n_events) {
                snprintf(text, sizeof(text), "the end counts %lld outcomes, %lld came", (long long)r->end_tests, (long long)r->n_events);
                q = add(f, FAULT_COUNT_MISMATCH, INTEGRITY_VIOLATED, text);
        }
        if (q == 0 && !x->killed && (r->end_status & 0xff) != exited) {
                snprintf(text, sizeof(text), "the end names status %lld, the process ended with %d", (long long)r->end_status, exited);
                q = add(f, FAULT_EXIT_STATUS_MISMATCH, INTEGRITY_VIOLATED, text);
        } else if (q == 0 && !status_fits(r)) {
                snprintf(text, sizeof(text), "status %lld with %lld outcomes, %lld of them bad", (long long)r->end_status,
                         (long long)r->n_events, (long long)r->n_bad);
                q = add(f, FAULT_EXIT_STATUS_MISMATCH, INTEGRITY_SUSPECT, text);
        }
        return q;
}

int report_finish(struct report *r, const struct report_exit *x, const struct framework *f, const char *const *ids, struct test_results *tests,
                  struct findings *findings, bool *ret_incomplete) {
        static const enum integrity weights[FAULT_MAX] = {
                [FAULT_FORGED_EVENT] = INTEGRITY_VIOLATED, [FAULT_SEQUENCE_REPEAT] = INTEGRITY_VIOLATED, [FAULT_SEQUENCE_GAP] = INTEGRITY_SUSPECT,
                [FAULT_EVENT_ORDER] = INTEGRITY_VIOLATED, [FAULT_EVENT_AFTER_END] = INTEGRITY_VIOLATED, [FAULT_UNKNOWN_TEST] = INTEGRITY_VIOLATED,
                [FAULT_NOT_COLLECTED] = INTEGRITY_SUSPECT, [FAULT_REPORT_LIMIT] = INTEGRITY_SUSPECT, [FAULT_COUNT_MISMATCH] = INTEGRITY_VIOLATED,
                [FAULT_EXIT_STATUS_MISMATCH] = INTEGRITY_SUSPECT, [FAULT_RUNNER_FROM_TREE] = INTEGRITY_SUSPECT,
                [FAULT_SHADOWING_MODULE] = INTEGRITY_SUSPECT, [FAULT_FOREIGN_TEST] = INTEGRITY_SUSPECT,
        };
        int q = put_outcomes(r, f, ids, tests);
        if (q == -ENOSPC)               /* a full map stays as it is */
                q = add(findings, FAULT_REPORT_LIMIT, INTEGRITY_SUSPECT, "more outcomes than a record holds");
        for (int k = 0; q == 0 && k < FAULT_MAX; k++)
                if (r->faults[k])
                        q = add(findings, k, weights[k], r->faults[k]);
        if (q == 0)
                q = judge_end(r, x, findings);
        *ret_incomplete = !r->ended;
        return q;
}

bool report_left_early(const struct report *r) {
        if (!r->started)
                return false;
        return r->n_tests > 0 || (!r->collected && (!r->ended || r->end_status == 0));
}

/* ---- a collection of its own -------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static bool in_broken(const struct report *own, const char *id) {
        for (size_t i = 0; i < own->n_paths; i++)
                if (holds(own->paths[i].path, id))
                        return true;
        return false;
}

/* Is any test of the same file (or class) in the sorted list? */
static bool file_is_known(const char **sorted, size_t n, const char *id) {
        const char *end = strstr(id, "::");
        size_t len = end ? (size_t)(end - id) + 2 : 0, low = 0, high = n;
        if (!end) {                     /* dotted: the module and class */
                const char *dot = strrchr(id, '.');
                len = dot ? (size_t)(dot - id) + 1 : 0;
        }
        if (len == 0)
                return false;
        while (low < high) {
                size_t mid = low + (high - low) / 2;
                if (strncmp(sorted[mid], id, len) < 0)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low < n && strncmp(sorted[low], id, len) == 0;
}

int report_check_collection(const struct report *r, const struct report *own, struct findings *findings) {
        if (!own->collected || !own->ended || own->n_tests == 0)
                return 0;
        const char **sorted = calloc(own->n_tests, sizeof(*sorted));
        if (!sorted)
                return -ENOMEM;
        for (size_t i = 0; i < own->n_tests; i++)
                sorted[i] = own->tests[i].id;
        qsort(sorted, own->n_tests, sizeof(*sorted), by_text);
        int q = 0;
        for (size_t i = 0; q == 0 && i < r->n_tests; i++) {
                const char *id = r->tests[i].id;
                if (!r->tests[i].ended || (r->tests[i].status != TEST_PASSED && r->tests[i].status != TEST_XPASSED) || in_broken(own, id)
                    || bsearch(&id, sorted, own->n_tests, sizeof(*sorted), by_text) || !file_is_known(sorted, own->n_tests, id))
                        continue;
                q = findings_add(findings, INTEGRITY_SUSPECT, "not_in_own_collection", NULL, id);
        }
        free(sorted);
        return q;
}

static bool is_cut_off(const char *id) {
        const char *open = strrchr(id, '[');
        return open && !strchr(open, ']');
}

int report_check_cut_off(const struct report *r, const struct report *own, const struct framework *f, const char *const *ids, struct findings *findings) {
        const char **sorted = NULL;
        int q = 0;
        for (; own->collected && own->ended && r->ended && ids && *ids && q == 0; ids++) {
                if (!is_cut_off(*ids))
                        continue;
                _cleanup_free_ char *start = framework_canonical(f, *ids);
                if (!start || (!sorted && !(sorted = calloc(r->n_tests + 1, sizeof(*sorted))))) {
                        q = -ENOMEM;
                        break;
                }
                if (!sorted[0]) {
                        for (size_t i = 0; i < r->n_tests; i++)
                                sorted[i] = r->tests[i].id;
                        qsort(sorted, r->n_tests, sizeof(*sorted), by_text);
                }
                for (size_t i = 0; i < own->n_tests; i++)
                        if (strncmp(own->tests[i].id, start, strlen(start)) == 0 &&
                            !bsearch(&(const char *){own->tests[i].id}, sorted, r->n_tests, sizeof(*sorted), by_text)) {
                                q = findings_add(findings, INTEGRITY_SUSPECT, "not_in_run", NULL, own->tests[i].id);
                                break;
                        }
        }
        free(sorted);
        return q;
}

/* As above, by the name without its parameters: what they are may depend on the code under test. */
static int by_name(const void *a, const void *b) {
        const char *x = *(const char *const *)a, *y = *(const char *const *)b;
        size_t n = strcspn(x, "["), m = strcspn(y, "[");
        int c = memcmp(x, y, MIN2(n, m));
        return c ? c : n < m ? -1 : n > m;
}

int report_check_complete(const struct report *r, const struct report *own, struct findings *findings) {
        if (!own->collected || !own->ended || !r->ended)
                return 0;
        const char **sorted = calloc(r->n_tests + 1, sizeof(*sorted));
        if (!sorted)
                return -ENOMEM;
        for (size_t i = 0; i < r->n_tests; i++)
                sorted[i] = r->tests[i].id;
        qsort(sorted, r->n_tests, sizeof(*sorted), by_name);
        size_t n = 0, first = 0;
        for (size_t i = own->n_tests; i-- > 0;)
                if (!bsearch(&(const char *){own->tests[i].id}, sorted, r->n_tests, sizeof(*sorted), by_name)) {
                        first = i;
                        n++;
                }
        free(sorted);
        if (n == 0)
                return 0;
        char text[256];
        snprintf(text, sizeof(text), "%zu tests that are there without the patch, the first: %.180s", n, own->tests[first].id);
        return findings_add(findings, INTEGRITY_SUSPECT, "not_in_run", NULL, text);
}
