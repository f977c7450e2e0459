#!/usr/bin/python3
"""A thousand idle sandboxes: memory of each, creation and commands as their number grows. Usage: idle.py BUILD"""
import os
import subprocess
import sys

build = sys.argv[1]
sys.exit(subprocess.run([os.path.join(build, "bench/bench_idle"), os.path.join(build, "src/cmd/brig"), "1000"]).returncode)
