#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "score/apply_config.h"

static const char *const runner_files[] = {
        "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "sitecustomize.py", "usercustomize.py",
};
static const char *const shared_files[] = { "pyproject.toml", "setup.cfg", "tox.ini", "package.json" };
static const char *const foreign_files[] = {
        "jest.config.js", "jest.config.ts", "jest.config.mjs", "jest.config.cjs", "jest.config.json", "vitest.config.js", "vitest.config.ts", "vitest.config.mjs",
        ".mocharc.js", ".mocharc.cjs", ".mocharc.json", ".mocharc.yml", ".mocharc.yaml", "phpunit.xml", ".rspec",
};
/* What pytest and unittest are made of. */
static const char *const runner_modules[] = {
        "pytest", "_pytest", "pluggy", "iniconfig", "py", "unittest", "xdist", "exceptiongroup", "sitecustomize", "usercustomize",
};
static const char *const library_modules[] = {
        "abc", "aifc", "argparse", "array", "ast", "asynchat", "asyncio", "asyncore", "atexit", "audioop", "base64", "bdb",
        "binascii", "bisect", "builtins", "bz2", "cProfile", "calendar", "cgi", "cgitb", "chunk", "cmath", "cmd", "code",
        "codecs", "codeop", "collections", "colorsys", "compileall", "concurrent", "configparser", "contextlib", "contextvars",
        "copy", "copyreg", "crypt", "csv", "ctypes", "curses", "dataclasses", "datetime", "dbm", "decimal", "difflib", "dis",
        "distutils", "doctest", "email", "encodings", "ensurepip", "enum", "errno", "faulthandler", "fcntl", "filecmp",
        "fileinput", "fnmatch", "fractions", "ftplib", "functools", "gc", "genericpath", "getopt", "getpass", "gettext", "glob",
        "graphlib", "grp", "gzip", "hashlib", "heapq", "hmac", "html", "http", "imaplib", "imghdr", "imp", "importlib",
        "inspect", "io", "ipaddress", "itertools", "json", "keyword", "linecache", "locale", "logging", "lzma", "mailbox",
        "mailcap", "marshal", "math", "mimetypes", "mmap", "modulefinder", "multiprocessing", "netrc", "nis", "nntplib",
        "ntpath", "nturl2path", "numbers", "opcode", "operator", "optparse", "os", "ossaudiodev", "pathlib", "pdb", "pickle",
        "pickletools", "pipes", "pkgutil", "platform", "plistlib", "poplib", "posix", "posixpath", "pprint", "profile", "pstats",
        "pty", "pwd", "py_compile", "pyclbr", "pydoc", "pydoc_data", "pyexpat", "queue", "quopri", "random", "re", "readline",
        "reprlib", "resource", "rlcompleter", "runpy", "sched", "secrets", "select", "selectors", "shelve", "shlex", "shutil",
        "signal", "site", "smtpd", "smtplib", "sndhdr", "socket", "socketserver", "spwd", "sqlite3", "sre_compile",
        "sre_constants", "sre_parse", "ssl", "stat", "statistics", "string", "stringprep", "struct", "subprocess", "sunau",
        "symtable", "sys", "sysconfig", "syslog", "tabnanny", "tarfile", "telnetlib", "tempfile", "termios", "textwrap",
        "threading", "time", "timeit", "token", "tokenize", "tomllib", "trace", "traceback", "tracemalloc", "tty", "types",
        "typing", "unicodedata", "unittest", "urllib", "uu", "uuid", "venv", "warnings", "wave", "weakref", "webbrowser",
        "wsgiref", "xdrlib", "xml", "xmlrpc", "zipapp", "zipfile", "zipimport", "zlib", "zoneinfo",
        /* what one or another version of pytest imports beside it */
        "attr", "attrs", "argcomplete", "atomicwrites", "colorama", "funcsigs", "importlib_metadata", "more_itertools", "packaging", "pathlib2",
        "pkg_resources", "pygments", "six", "toml", "tomli", "typing_extensions", "wcwidth", "zipp",
};

static bool equals(const char *s, const char *p, size_t n) { return strlen(s) == n && memcmp(s, p, n) == 0; }

static bool is_one_of(const char *const *list, size_t count, const char *p, size_t n) {
        for (size_t i = 0; i < count; i++)
                if (equals(list[i], p, n))
                        return true;
        return false;
}

static bool ends_with(const char *p, size_t n, const char *end) {
        size_t m = strlen(end);
        return n >= m && memcmp(p + n - m, end, m) == 0;
}

/* Name of the module that Python finds in a file of this name: up to the first dot, NULL when it finds none. */
static bool module_name(const char *p, size_t n, size_t *ret_len) {
        const char *dot = memchr(p, '.', n);
        if (!dot || !(ends_with(p, n, ".py") || ends_with(p, n, ".pyc") || ends_with(p, n, ".so")))
                return false;
        *ret_len = (size_t)(dot - p);
        return *ret_len > 0;
}

static enum config_class module_class(const char *p, size_t n) {
        if (equals("conftest", p, n))
                return CONFIG_RUNNER;  /* pytest finds conftest.py, and Python imports what stands before it: a package, compiled code */
        if (is_one_of(runner_modules, ARRAY_SIZE(runner_modules), p, n))
                return CONFIG_SHADOW;
        return is_one_of(library_modules, ARRAY_SIZE(library_modules), p, n) ? CONFIG_LIBRARY : CONFIG_NONE;
}

/* "dir/NAME.py", or "dir/NAME/__init__.py": without that a directory never wins against an installed module. */
static enum config_class classify_module(const char *path, const char *base, const char **ret_module, size_t *ret_len, size_t *ret_dir_len) {
        size_t n, module_len = 0;
        const char *module = base;
        if (!module_name(base, strlen(base), &n))
                return CONFIG_NONE;
        module_len = n;
        if (equals("__init__", base, n)) {
                if (base == path)
                        return CONFIG_NONE;
                const char *end = base - 1;
                for (module = end; module > path && module[-1] != '/'; module--)
                        ;
                module_len = (size_t)(end - module);
        }
        *ret_module = module;
        *ret_len = module_len;
        *ret_dir_len = (size_t)(module - path);
        return module_class(module, module_len);
}

static bool is_metadata_name(const char *p, size_t n) {
        static const char *const ends[] = { ".dist-info", ".egg-info", "egg-info" };
        for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
                size_t m = strlen(ends[i]);
                if (n >= m && strncasecmp(p + n - m, ends[i], m) == 0 && (*ends[i] == '.' || n == m))
                        return true;
        }
        return false;
}

/* Entry points of an installed project: the file, or a link in the place of the directory. Python looks for the directory without regard to case. */
static bool in_metadata(const char *path) {
        const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
        if (is_metadata_name(base, strlen(base)))
                return true;
        if (!slash || strcmp(base, "entry_points.txt") != 0)
                return false;
        const char *dir = slash;
        while (dir > path && dir[-1] != '/')
                dir--;
        return is_metadata_name(dir, (size_t)(slash - dir));
}

enum config_class config_classify(const char *path, const char **ret_module, size_t *ret_module_len, size_t *ret_dir_len) {
        const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
        size_t n = strlen(base);
        *ret_module = NULL;
        if (is_one_of(runner_files, ARRAY_SIZE(runner_files), base, n) || ends_with(base, n, ".pth") || ends_with(base, n, ".egg-link") || in_metadata(path))
                return CONFIG_RUNNER;
        if (is_one_of(shared_files, ARRAY_SIZE(shared_files), base, n))
                return CONFIG_SHARED;
        if (is_one_of(foreign_files, ARRAY_SIZE(foreign_files), base, n))
                return CONFIG_FOREIGN;
        if (ends_with(base, n, ".pyc") || ends_with(base, n, ".pyo") || strncmp(path, "__pycache__/", 12) == 0 || strstr(path, "/__pycache__/"))
                return CONFIG_BYTECODE;
        return classify_module(path, base, ret_module, ret_module_len, ret_dir_len);
}

static bool has_line(const char *p, size_t n, const char *start) {
        size_t m = strlen(start);
        for (const char *end = p + n; p && p < end; p++) {
                if ((size_t)(end - p) >= m && memcmp(p, start, m) == 0)
                        return true;
                p = memchr(p, '\n', (size_t)(end - p));
                if (!p)
                        break;
        }
        return false;
}

bool config_is_passive(const char *path, const char *data, size_t n) {
        size_t len = strlen(path);
        if (!data)
                return false;
        if (ends_with(path, len, ".pth"))
                return !has_line(data, n, "import ") && !has_line(data, n, "import\t");
        if (ends_with(path, len, "entry_points.txt"))
                return !memmem(data, n, "pytest11", 8);
        return ends_with(path, len, ".egg-link");
}

static bool has_module(int lib, const char *python, const char *name, size_t n) {
        static const char *const dirs[] = { "site-packages", "dist-packages" }, *const ends[] = { ".py", "/__init__.py" };
        char path[512];
        struct stat st;
        for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
                for (size_t k = 0; k < ARRAY_SIZE(ends); k++)
                        if (snprintf(path, sizeof path, "%s/%s/%.*s%s", python, dirs[i], (int)n, name, ends[k]) < (int)sizeof path &&
                            fstatat(lib, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
                                return true;
        return false;
}

bool config_is_installed(int root, const char *top, const char *name, size_t n) {
        static const char *const libs[] = { "lib", "local/lib" };
        for (size_t i = 0; i < ARRAY_SIZE(libs); i++) {
                char path[64];
                snprintf(path, sizeof path, "%s%s", top, libs[i]);
                int fd = fs_open_beneath(root, path, O_RDONLY | O_DIRECTORY, 0);
                DIR *d = fd < 0 ? NULL : fdopendir(fd);
                bool found = false;
                if (!d)
                        fd_close(fd);
                for (struct dirent *de; d && !found && (de = readdir(d));)
                        found = strncmp(de->d_name, "python3", 7) == 0 && has_module(dirfd(d), de->d_name, name, n);
                if (d)
                        closedir(d);
                if (found)
                        return true;
        }
        return false;
}

/* ---- sections ------------------------------------------------------------------------------------------------------------ */

struct cursor { const char *p, *end; bool inside; };

/* "[tool:pytest]", "[pytest]", "[tool.pytest...]" and its sub-tables. */
static bool is_runner_section(const char *p, size_t n) {
        while (n > 0 && (*p == '[' || *p == ' ' || *p == '"')) { p++; n--; }
        static const char *const start[] = { "tool:pytest", "pytest", "tool.pytest", "tool.\"pytest" };
        for (size_t i = 0; i < ARRAY_SIZE(start); i++)
                if (n >= strlen(start[i]) && memcmp(p, start[i], strlen(start[i])) == 0)
                        return true;
        return false;
}

/* Next line of the runner's section, without white space at its ends; false at the end. */
static bool next_line(struct cursor *c, const char **ret, size_t *ret_len) {
        while (c->p < c->end) {
                const char *nl = memchr(c->p, '\n', (size_t)(c->end - c->p)), *stop = nl ? nl : c->end, *p = c->p;
                c->p = nl ? nl + 1 : c->end;
                if (p < stop && *p == '[')
                        c->inside = is_runner_section(p, (size_t)(stop - p));
                while (stop > p && strchr(" \t\r", stop[-1])) stop--;
                if (!c->inside || stop == p)
                        continue;
                *ret = p;
                *ret_len = (size_t)(stop - p);
                return true;
        }
        return false;
}

bool config_same_section(const char *path, const char *a, size_t a_len, const char *b, size_t b_len) {
        if (ends_with(path, strlen(path), ".json"))     /* scripts and runners' options are all over it */
                return a && b && a_len == b_len && memcmp(a, b, a_len) == 0;
        struct cursor x = { a, a ? a + a_len : a, false }, y = { b, b ? b + b_len : b, false };
        for (;;) {
                const char *p, *q;
                size_t n, m;
                bool left = next_line(&x, &p, &n), right = next_line(&y, &q, &m);
                if (left != right)
                        return false;
                if (!left)
                        return true;
                if (n != m || memcmp(p, q, n) != 0)
                        return false;
        }
}
