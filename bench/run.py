#!/usr/bin/env python3
"""Runs the benchmarks and writes docs/benchmarks.md. usage: bench/run.py [--build DIR] [NAME...]"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE.parent / "docs" / "benchmarks.md"


def run(script, build):
    print(f"== {script.name}", file=sys.stderr, flush=True)
    done = subprocess.run(["/usr/bin/python3", str(script), build], stdout=subprocess.PIPE, timeout=1500)
    rows = [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith("{")]
    if done.returncode != 0 or not rows:
        rows.append({"bar": script.stem, "failed": f"exit status {done.returncode}, {len(rows)} results"})
    return [dict(row, script=script.name) for row in rows]


def met(row):
    if "failed" in row:
        return False
    return row["value"] <= row["limit"] if row["better"] == "lower" else row["value"] >= row["limit"]


def table(rows):
    yield "| bar | limit | measured | met | detail | command |"
    yield "| - | - | - | - | - | - |"
    for row in rows:
        if "failed" in row:
            yield f"| {row['bar']} | | | **no** | {row['failed']} | `bench/{row['script']}` |"
            continue
        sign = "≤" if row["better"] == "lower" else "≥"
        unit = "" if row["unit"] == "ratio" else " " + row["unit"]
        yield (f"| {row['bar']} | {sign} {row['limit']}{unit} | {row['value']}{unit} | {'yes' if met(row) else '**no**'} "
               f"| {row.get('detail', '')} | `bench/{row['script']}` |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("names", nargs="*", help="benchmarks to run; without any, all of them, and the page is written")
    args = parser.parse_args()
    scripts = [p for p in sorted(HERE.glob("*.py")) if p.name != "run.py" and os.access(p, os.X_OK)]
    if args.names:
        scripts = [p for p in scripts if p.stem in args.names]
    rows = [row for script in scripts for row in run(script, args.build)]
    text = "\n".join(table(rows))
    print(text)
    if not args.names:
        cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "unknown")
        TARGET.write_text(f"""# Benchmarks

Written by `make bench` on {datetime.date.today()}: Linux {platform.release()}, {os.cpu_count()} cores ({cpu}). Medians of paired runs on one machine in
one run; on a shared machine only the ratios travel. `bench/README.md` says what each program does.

{text}
""", encoding="utf-8")
    return 0 if all(map(met, rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
