/* How many faults a linter counted, out of its output: its own closing line where it has one, else its lines of the form
 * file:line: message. Knows ruff, flake8, mypy, pylint, clippy, eslint, go vet, clang-tidy, cppcheck and dotnet by the command;
 * anything else is counted by lines. Pure. */
#pragma once

/* `text` as framework_clean leaves it. */
int lint_count(const char *command, const char *text);
