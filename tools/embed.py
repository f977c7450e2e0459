#!/usr/bin/env python3
"""Writes an assembly file that carries FILE as read-only data.

usage: embed.py SYMBOL FILE OUTPUT.S

C sees it as `extern const unsigned char SYMBOL[]` and `extern const unsigned char SYMBOL_end[]`.
"""
import os
import sys

symbol, source, output = sys.argv[1:]
with open(output, "w", encoding="utf-8") as out:
    out.write(f"""\
    .section .rodata
    .balign 16
    .globl {symbol}
    .hidden {symbol}
    .globl {symbol}_end
    .hidden {symbol}_end
{symbol}:
    .incbin "{os.path.abspath(source)}"
{symbol}_end:
    .byte 0
    .section .note.GNU-stack,"",@progbits
""")
