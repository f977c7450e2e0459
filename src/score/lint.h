/* How many faults a linter counted, out of its output: its own closing line where it has one, else its lines of the form
 * file:line: message. Knows ruff, flake8, mypy, pylint, clippy, eslint, go vet, clang-tidy, cppcheck and dotnet by the command.
 * Pure. */
#pragma once

/* `text` as framework_clean leaves it; `status` as from waitpid. -1: nobody knows, because the linter is none of these or did not
 * run to an end of its own. */
int lint_count(const char *command, int status, const char *text);
