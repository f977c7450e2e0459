#!/usr/bin/python3
"""The cost of a sandbox: runs the C benchmark, which prints its bars."""
import os
import subprocess
import sys

build = sys.argv[1]
rounds = os.environ.get("BENCH_ROUNDS", "200")
sys.exit(subprocess.call([os.path.join(build, "bench/bench_sandbox"), os.path.join(build, "src/cmd/brig"), rounds]))
