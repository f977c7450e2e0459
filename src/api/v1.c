#include <string.h>

#include "api/rlm_api.h"

/* ---- the table ------------------------------------------------------------------------------------------------------------------ */

#define QUERY(list) .query = list, .n_query = ARRAY_SIZE(list)

static const struct v1_param wait_query[] = { { "wait", "integer", "seconds to wait until it is not `starting` any more" } };
static const struct v1_param list_query[] = {
        { "state", "string", "states, separated by commas, or `all`; by default those that live" }, { "label", "string", "`name=value`; all of them, separated by commas, must be there" },
        { "limit", "integer", "sessions of one page" }, { "after", "string", "`next` of the page before" },
};
static const struct v1_param output_query[] = {
        { "stream", "string", "`stdout` (default) or `stderr`" }, { "offset", "integer", "first byte; negative: from the end" },
        { "limit", "integer", "bytes of one answer" }, { "encoding", "string", "`base64` for bytes as they are" },
        { "follow", "boolean", "answers with server-sent events: what there is from `offset` on, what comes, and at last `exit`; of both streams unless `stream` names one" },
};
static const struct v1_param import_query[] = {
        { "name", "string", "what the image is called; without it, the names that the archive gives" }, { "select", "string", "of an archive with several images: the one with this name in it" },
        { "stream", "boolean", "answers with server-sent events: `progress`, and at the end `image` or `error`" },
};
static const struct v1_param build_query[] = { { "options", "string", "where the body is an archive: the fields, as a JSON object" } };
#define PATH_PARAM { "path", "string", "absolute, or relative to the session's working directory; any bytes, percent-encoded" }
static const struct v1_param path_query[] = { PATH_PARAM };
static const struct v1_param stat_query[] = { PATH_PARAM, { "follow", "boolean", "what a link leads to" } };
static const struct v1_param write_query[] = {
        PATH_PARAM, { "mode", "string", "octal; by default that of the file there, else 0644" }, { "append", "boolean", "at the end of what is there" },
        { "create", "boolean", "fail if there is something" }, { "parents", "boolean", "missing directories are made" },
};
static const struct v1_param delete_query[] = { PATH_PARAM, { "recursive", "boolean", "a directory with all that is in it" } };
static const struct v1_param files_query[] = {
        { "path", "string", "a directory; by default the session's working directory" }, { "depth", "integer", "how far below directories are listed too; 0" },
        { "limit", "integer", "entries of one answer, 1000; at most 10000" }, { "after", "string", "the last name of the answer before" },
};
static const struct v1_param search_query[] = {
        { "path", "string", "a directory, or one file; by default the session's working directory" }, { "name", "string", "pattern of the file's name, such as `*.py`" },
        { "text", "string", "what a line holds; without, names alone are looked for" }, { "regex", "boolean", "`text` is a POSIX extended regular expression" },
        { "ignore_case", "boolean", "in `text`" }, { "limit", "integer", "results, 1000; at most 10000" },
};
static const struct v1_param archive_query[] = { { "path", "string", "a directory or file; by default the session's working directory" }, { "format", "string", "`tar` (default) or `tar.gz`" } };
static const struct v1_param unpack_query[] = { { "path", "string", "the directory, made where it is missing; by default the session's working directory" } };
static const struct v1_param diff_query[] = { { "offset", "integer", "entries to leave out" }, { "limit", "integer", "entries of one answer, 1000; at most 10000" } };
static const struct v1_param pending_query[] = { { "wait", "number", "seconds to wait until there is one; at most 60" } };
static const struct v1_param close_query[] = { { "close", "boolean", "end of file after these bytes" } };

static const struct v1_param attach_query[] = {
        { "from", "integer", "first byte of its output wanted, counted from its beginning; by default all that is kept" }, { "read_only", "boolean", "only look" },
};

static const struct v1_route table[] = {
        { "GET", "/v1/images", v1_list_images, "listImages", "Lists the images of the store, the newest first.", .status = 200, .answer = "`images`, without their configurations; `bytes` of all layers" },
        { "POST", "/v1/images/import", v1_post_import, "importImage", "Imports an image from an archive: a tar of a root file system, an OCI layout, or what `docker save` writes (plain, gzip, xz or zstd).", .content = "application/x-tar", QUERY(import_query), .status = 200, .upload = true, .answer = "the image" },
        { "GET", "/v1/images/{ref}", v1_get_image, "getImage", "What is known of an image, by name or digest (a `/` in a name is written `%2F`).", .status = 200, .answer = "the image" },
        { "DELETE", "/v1/images/{ref}", v1_delete_image, "deleteImage", "Removes a name, and with the last one the image; by digest, the image with all its names.", .status = 200, .answer = "`ref`, `deleted`" },
        { "POST", "/v1/images/{ref}/tag", v1_post_tag, "tagImage", "Gives an image one more name; a name that another one had moves.", v1_tag_body, .status = 200, .answer = "the image" },
        { "POST", "/v1/images/pull", v1_post_pull, "pullImage", "Pulls an image from a registry; what is there already is not fetched again.", v1_pull_body, .status = 200, .answer = "the image" },
        { "POST", "/v1/images/build", v1_post_build, "buildImage", "Builds an image from a Dockerfile. With a tar archive (plain, gzip, xz, zstd) as the body, that is the build context, and these fields are the query's `options`.", v1_build_body, QUERY(build_query), .status = 200, .upload = true, .answer = "the image" },
        { "GET", "/v1/openapi.json", v1_get_openapi, "openapi", "This description.", .status = 200, .answer = "OpenAPI 3.1" },
        { "POST", "/v1/sessions", v1_post_session, "createSession", "Starts a session.", v1_create_body, QUERY(wait_query), .status = 201, .answer = "the session" },
        { "GET", "/v1/sessions", v1_list_sessions, "listSessions", "Lists sessions in order of creation.", QUERY(list_query), .status = 200, .answer = "`sessions`, and `next` where there are more" },
        { "GET", "/v1/sessions/{id}", v1_get_session, "getSession", "What is known of a session, live or ended.", QUERY(wait_query), .status = 200, .answer = "the session" },
        { "PATCH", "/v1/sessions/{id}", v1_patch_session, "changeSession", "Changes labels and times; answers when it is on disk.", v1_patch_body, .status = 200, .answer = "the session" },
        { "DELETE", "/v1/sessions/{id}", v1_delete_session, "deleteSession", "Ends it, at any moment, and forgets it; answers when nothing of it is left.", .status = 200, .answer = "`id`, `deleted`" },
        { "POST", "/v1/sessions/{id}/heartbeat", v1_post_heartbeat, "heartbeat", "Its owner is alive: renews the lease.", .status = 200, .answer = "`id`, `lease_until`" },
        { "GET", "/v1/sessions/{id}/usage", v1_get_usage, "getUsage", "What it uses at this moment.", .status = 200, .answer = "numbers; null where the kernel cannot tell" },
        { "POST", "/v1/sessions/{id}/terminals", v1_post_terminal, "openTerminal", "Runs a program on a terminal, which lives on while nobody looks.", v1_terminal_body, .status = 201, .answer = "the terminal" },
        { "GET", "/v1/sessions/{id}/terminals", v1_list_terminals, "listTerminals", "Lists terminals, the newest first.", .status = 200, .answer = "`terminals`" },
        { "GET", "/v1/sessions/{id}/terminals/{tid}", v1_get_terminal, "getTerminal", "How a terminal does.", .status = 200, .answer = "the terminal" },
        { "DELETE", "/v1/sessions/{id}/terminals/{tid}", v1_delete_terminal, "closeTerminal", "Kills it and what it started, and forgets it.", .status = 200, .answer = "`id`, `deleted`" },
        { "GET", "/v1/sessions/{id}/terminals/{tid}/attach", v1_attach_terminal, "attachTerminal", "Looks at it by WebSocket, one of several: first what is kept of its output, then what comes.", QUERY(attach_query), .status = 101, .answer = "a WebSocket: see docs/terminals.md" },
        { "POST", "/v1/sessions/{id}/ports", v1_post_port, "openPort", "A token for a server inside; it is reached at `url` by every method, and by WebSocket.", v1_port_body, .status = 200, .answer = "`session_id`, `port`, `token` (as `?token=` or `X-Brig-Port-Token`), `url`" },
        { "GET", "/v1/sessions/{id}/files", v1_get_file, "readFile", "The bytes of a file; `Range` is understood.", QUERY(path_query), .status = 200, .answer = "the bytes" },
        { "PUT", "/v1/sessions/{id}/files", v1_put_file, "writeFile", "Writes a file: whole or not at all.", .content = "application/octet-stream", .upload = true, QUERY(write_query), .status = 200, .answer = "the file's entry, and `written`" },
        { "DELETE", "/v1/sessions/{id}/files", v1_delete_file, "deleteFile", "Deletes a file, a link, or a directory.", QUERY(delete_query), .status = 200, .answer = "`deleted`" },
        { "GET", "/v1/sessions/{id}/files/stat", v1_get_file_stat, "statFile", "What is at a path.", QUERY(stat_query), .status = 200, .answer = "`path`, `type`, `size`, `mode`, `uid`, `gid`, `mtime`, `target`" },
        { "GET", "/v1/sessions/{id}/files/list", v1_list_files, "listFiles", "What is in a directory, in the order of the names' bytes.", QUERY(files_query), .status = 200, .answer = "`entries`, and `more` where there are" },
        { "GET", "/v1/sessions/{id}/files/search", v1_search_files, "searchFiles", "Files by name, lines by what they hold.", QUERY(search_query), .status = 200, .answer = "`matches`; `more` where there are; `skipped` files that were too big or could not be read" },
        { "POST", "/v1/sessions/{id}/files/move", v1_post_move, "moveFile", "Moves or renames.", v1_move_body, .status = 200, .answer = "the entry at its new path" },
        { "POST", "/v1/sessions/{id}/files/mkdir", v1_post_mkdir, "makeDirectory", "Makes a directory.", v1_mkdir_body, .status = 200, .answer = "its entry" },
        { "POST", "/v1/sessions/{id}/files/chmod", v1_post_chmod, "changeFile", "Changes mode and owner.", v1_chmod_body, .status = 200, .answer = "the entry" },
        { "GET", "/v1/sessions/{id}/archive", v1_get_archive, "getArchive", "A tar archive of what is there.", QUERY(archive_query), .status = 200, .answer = "the archive" },
        { "PUT", "/v1/sessions/{id}/archive", v1_put_archive, "putArchive", "Unpacks a tar archive, plain, gzip, xz or zstd.", .content = "application/x-tar", .upload = true, QUERY(unpack_query), .status = 200, .answer = "`entries`, `bytes`, `unpacked_bytes`, `skipped`" },
        { "GET", "/v1/sessions/{id}/network", v1_get_network, "getNetwork", "What a session with the network `allow` may reach, what it did, what was refused; also after its end.", .status = 200, .answer = "`rules`, `counters`, `denied`: see docs/network.md" },
        { "PUT", "/v1/sessions/{id}/network", v1_put_network, "setNetwork", "Gives it other rules, from now on.", v1_network_body, .status = 200, .answer = "the same" },
        { "POST", "/v1/sessions/{id}/pause", v1_post_pause, "pauseSession", "Stops every process where it stands.", .status = 200, .answer = "`id`, `paused`" },
        { "POST", "/v1/sessions/{id}/resume", v1_post_resume, "resumeSession", "Lets them go on.", .status = 200, .answer = "`id`, `paused`" },
        { "POST", "/v1/sessions/{id}/snapshots", v1_post_snapshot, "snapshotSession", "Makes an image of its files as they are, without sockets and FIFOs; its processes stand still meanwhile.", v1_snapshot_body, .status = 200, .answer = "the image" },
        { "POST", "/v1/sessions/{id}/fork", v1_post_fork, "forkSession", "Starts sessions from a snapshot of its files, all or none, with what it was started with.", v1_fork_body, .status = 201, .answer = "`snapshot`, the image's digest, and `sessions`, their ids" },
        { "GET", "/v1/sessions/{id}/diff", v1_get_diff, "diffSession", "What it has added, changed and deleted below `/`, in the order of a walk.", QUERY(diff_query), .status = 200, .answer = "`changes`: `path`, `change` (added, changed, deleted), `type`, `size`; `more` where there are" },
        { "POST", "/v1/sessions/{id}/exec", v1_post_exec, "exec", "Runs a command and waits for its end.", v1_exec_body, .status = 200, .answer = "`exit_code`, `stdout`, `stderr`, and how it ended" },
        { "POST", "/v1/sessions/{id}/commands", v1_post_command, "startCommand", "Runs a command in the background.", v1_exec_body, .status = 201, .answer = "the command" },
        { "GET", "/v1/sessions/{id}/commands", v1_list_commands, "listCommands", "Lists background commands, the newest first.", .status = 200, .answer = "`commands`" },
        { "GET", "/v1/sessions/{id}/commands/{cid}", v1_get_command, "getCommand", "How a background command does.", .status = 200, .answer = "the command" },
        { "GET", "/v1/sessions/{id}/commands/{cid}/output", v1_get_output, "getCommandOutput", "A piece of its output.", QUERY(output_query), .status = 200, .answer = "`data`, `offset`, `next_offset`, `eof`" },
        { "DELETE", "/v1/sessions/{id}/commands/{cid}", v1_delete_command, "deleteCommand", "Kills it and what it started; forgets it where it has ended before.", .status = 200, .answer = "`id`, `killed`, `deleted`" },
        { "POST", "/v1/sessions/{id}/commands/{cid}/signal", v1_post_signal, "signalCommand", "Sends a signal to its first process.", v1_signal_body, .status = 200, .answer = "`id`, `signal`" },
        { "POST", "/v1/sessions/{id}/commands/{cid}/stdin", v1_post_stdin, "writeCommand", "Writes the body to its standard input.", .content = "application/octet-stream", QUERY(close_query), .status = 200, .answer = "`id`, `bytes`" },
        { "POST", "/v1/sessions/{id}/finish", v1_post_finish, "finishSession", "Runs a verifier whose files nobody saw, reads its results, and ends the session; again: the same answer. `agent_processes` is `kill` here.", v1_finish_body, .status = 200, .answer = "`exit_code`, `stdout`, `stderr`, `result_files`, `stale_files`" },
        { "POST", "/v1/rlm/sessions", v1_post_rlm_session, "createRlmSession", "Makes a session of the RLM runtime; no sandbox yet.", v1_rlm_session_body, .status = 201, .answer = "the session" },
        { "GET", "/v1/rlm/sessions", v1_list_rlm_sessions, "listRlmSessions", "Lists them, and how many slots are taken.", .status = 200, .answer = "`sessions`; `slots`, `slots_used`, `roots`, `ending`, `waiting`, `warm`" },
        { "GET", "/v1/rlm/sessions/{id}", v1_get_rlm_session, "getRlmSession", "What is known of one.", .status = 200, .answer = "`session`, `workspace`, `generation`, `turn`, `root`, `parent`, `children`" },
        { "DELETE", "/v1/rlm/sessions/{id}", v1_delete_rlm_session, "deleteRlmSession", "Fences and forgets it; answers when nothing of it is left.", .status = 200, .answer = "`session`, `deleted`" },
        { "POST", "/v1/rlm/sessions/{id}/turns", v1_post_rlm_turn, "beginTurn", "Begins a turn: a fresh Python, tools, outputs, a budget and a secret.", v1_rlm_turn_body, .status = 201, .answer = "`turn`, `generation`" },
        { "DELETE", "/v1/rlm/sessions/{id}/turns/{tid}", v1_delete_rlm_turn, "endTurn", "Ends a turn; answers when all its processes are dead.", .status = 200, .answer = "`turn`, `ended`" },
        { "POST", "/v1/rlm/sessions/{id}/turns/{tid}/children", v1_post_rlm_child, "beginChild", "Makes a child, a sandbox for a sub-agent of the turn, and begins its one turn.", v1_rlm_turn_body, .status = 201, .answer = "`child`, the id of its session, `turn`, `generation`" },
        { "GET", "/v1/rlm/sessions/{id}/turns/{tid}/children", v1_list_rlm_children, "listChildren", "Lists those of the turn that are not gone.", .status = 200, .answer = "`children`: `child`, `turn`, `state`" },
        { "POST", "/v1/rlm/sessions/{id}/turns/{tid}/children/{cid}/inputs", v1_post_rlm_inputs, "childInputs", "Copies files of the turn's workspace into a child, to the same paths.", v1_rlm_files_body, .status = 200, .answer = "`files`: `path`, `to`, `size`, `sha256`" },
        { "POST", "/v1/rlm/sessions/{id}/turns/{tid}/children/{cid}/results", v1_post_rlm_results, "childResults", "Copies files of a child into the turn's workspace, below `children/CHILD/`.", v1_rlm_files_body, .status = 200, .answer = "`files`: `path`, `to`, `size`, `sha256`" },
        { "POST", "/v1/rlm/sessions/{id}/turns/{tid}/execute", v1_post_rlm_execute, "executeAction", "Runs code in the turn's namespace and waits for its end.", v1_rlm_execute_body, .status = 200, .answer = "`stdout`, `stderr`, `final`, `error`, `error_category`, `tool_error`, `truncated`, `usage`" },
        { "GET", "/v1/rlm/sessions/{id}/turns/{tid}/pending", v1_get_rlm_pending, "pendingCalls", "Claims every call that nobody has claimed, each with a lease.", QUERY(pending_query), .status = 200, .answer = "`requests`: `id`, `lease`, `tool_name`, `args`, `kwargs`; `remaining_s`" },
        { "POST", "/v1/rlm/sessions/{id}/turns/{tid}/result", v1_post_rlm_result, "settleCall", "Settles a call, once.", v1_rlm_result_body, .status = 200, .answer = "`settled`" },
        { "GET", "/v1/rlm/sessions/{id}/turns/{tid}/events", v1_get_rlm_events, "turnEvents", "Server-sent events: `stdout`, `stderr`, `tools_pending`, `execution_done`.", .status = 200, .answer = "events" },
        { "POST", "/v1/rlm/sessions/{id}/turns/{tid}/cancel", v1_post_rlm_cancel, "cancelTurn", "Fence: takes the turn's authority away at once, kills its sandbox, raises the generation.", .status = 200, .answer = "`turn`, `cancelled`, `generation`" },
        { "POST", "/v1/sessions/{id}/shells", v1_post_shell, "openShell", "Opens a shell whose state stays from command to command.", v1_shell_body, .status = 201, .answer = "the shell" },
        { "GET", "/v1/sessions/{id}/shells", v1_list_shells, "listShells", "Lists open shells, the newest first.", .status = 200, .answer = "`shells`" },
        { "GET", "/v1/sessions/{id}/shells/{sid}", v1_get_shell, "getShell", "Whether a command runs in it, and where it stands.", .status = 200, .answer = "the shell" },
        { "POST", "/v1/sessions/{id}/shells/{sid}/exec", v1_post_shell_exec, "shellExec", "Runs a command in the shell, in which none runs, and waits for its end.", v1_shell_exec_body, .status = 200, .answer = "`exit_code`, `stdout`, `stderr`, `cwd`" },
        { "DELETE", "/v1/sessions/{id}/shells/{sid}", v1_delete_shell, "closeShell", "Kills it and what it started.", .status = 200, .answer = "`id`, `deleted`" },
};

const struct v1_route *v1_table(size_t *ret_n) {
        *ret_n = ARRAY_SIZE(table);
        return table;
}

/* What no table of fields describes. */
static const struct http_route beside[] = {
        { .method = "*", .pattern = "/v1/sessions/{id}/ports/{port}/{*}", .handler = v1_serve_port, .open = true, .stream_body = true, .body_max = HTTP_BODY_ANY },
};

const struct http_route *v1_routes(size_t *ret_n) {
        static struct http_route routes[ARRAY_SIZE(table) + ARRAY_SIZE(beside)];
        for (size_t i = 0; i < ARRAY_SIZE(table); i++)
                routes[i] = (struct http_route){ .method = table[i].method, .pattern = table[i].path, .handler = table[i].handler,
                                                 .stream_body = table[i].upload, .body_max = table[i].upload ? HTTP_BODY_ANY : 0 };
        memcpy(routes + ARRAY_SIZE(table), beside, sizeof beside);
        *ret_n = ARRAY_SIZE(routes);
        return routes;
}
