#!/usr/bin/python3
"""Turns of Python: actions, turns on a warm sandbox, turns from nothing. Usage: turn.py BUILD"""
import os
import subprocess
import sys

build = sys.argv[1]
sys.exit(subprocess.run([os.path.join(build, "bench/bench_turn"), os.path.join(build, "src/cmd/brig"), "100"]).returncode)
