#!/usr/bin/env python3
"""Checks that each layer of src/ includes only the layers it may use (docs/architecture.md, "Layers").

Prints one line a violation and exits 1 if there is any.
"""
import pathlib
import re
import sys

MAY_USE = {
    "base": set(),
    "egress": {"base"},
    "archive": {"base"},
    "sandbox": {"base", "egress", "helper"},
    "store": {"base", "archive", "egress", "sandbox"},
    "registry": {"base", "sandbox", "store"},
    "build": {"base", "archive", "egress", "sandbox", "store", "registry"},
    "fleet": {"base", "store"},
    "score": {"base", "egress", "sandbox", "store"},
    "session": {"base", "egress", "sandbox", "store"},
    "rlm": {"base", "egress", "sandbox", "store", "fleet"},
    "http": {"base"},
    "engine": {"base", "egress", "sandbox", "store", "registry", "build", "fleet", "score", "session", "rlm"},
    "api": {"base", "egress", "sandbox", "store", "registry", "build", "fleet", "score", "session", "rlm", "engine", "http"},
    # The static helper links the pure parts of scoring (patches) into a program of its own.
    "helper": {"base", "archive", "build", "sandbox", "score"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z]+)/', re.M)


def main() -> int:
    src = pathlib.Path(__file__).resolve().parent.parent / "src"
    bad = 0
    for path in sorted(src.rglob("*.[ch]")):
        layer = path.relative_to(src).parts[0]
        if layer == "cmd":  # a verb may use what it needs
            continue
        if layer not in MAY_USE:
            print(f"{path.relative_to(src)}: layer {layer!r} is not in the table")
            bad += 1
            continue
        for match in INCLUDE.finditer(path.read_text(encoding="utf-8")):
            used = match.group(1)
            if used != layer and used != "brig" and used not in MAY_USE[layer]:
                line = path.read_text(encoding="utf-8")[: match.start()].count("\n") + 1
                print(f"src/{path.relative_to(src)}:{line}: {layer} may not use {used}")
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
