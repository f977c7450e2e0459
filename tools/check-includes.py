#!/usr/bin/env python3
"""Checks that each layer of src/ includes only the layers it may use (docs/architecture.md, "Layers").

Prints one line a violation and exits 1 if there is any.
"""
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent


def read_table() -> dict:
    """Layer -> what it may use: names, or "all above", or "all above but" names."""
    text = (TOP / "docs/architecture.md").read_text(encoding="utf-8")
    section = text.split("\n## Layers\n", 1)[1].split("\n## ", 1)[0]
    table = {}
    for line in section.splitlines():
        row = re.match(r"\| `([a-z]+)` \|([^|]*)\|", line)
        if row:
            named = set(re.findall(r"`([a-z]+)`", row.group(2)))
            table[row.group(1)] = set(table) - named if "all above" in row.group(2) else named
    return table


INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z]+)/', re.M)


def main() -> int:
    src = TOP / "src"
    may_use = read_table()
    bad = 0
    for layer in sorted(set(may_use) - {p.name for p in src.iterdir()}):
        print(f"docs/architecture.md: there is no layer {layer!r}")
        bad += 1
    for path in sorted(src.rglob("*.[ch]")):
        layer = path.relative_to(src).parts[0]
        if layer == "cmd":  # a verb may use what it needs
            continue
        if layer not in may_use:
            print(f"{path.relative_to(src)}: layer {layer!r} is not in the table")
            bad += 1
            continue
        for match in INCLUDE.finditer(path.read_text(encoding="utf-8")):
            used = match.group(1)
            if used != layer and used != "brig" and used not in may_use[layer]:
                line = path.read_text(encoding="utf-8")[: match.start()].count("\n") + 1
                print(f"src/{path.relative_to(src)}:{line}: {layer} may not use {used}")
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
