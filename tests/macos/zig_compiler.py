"""Writes the compiler by which tests/macos/compile compiles: clang as it is in zig, told what zig tells it.

    zig_compiler.py ZIG TARGET COMPILER

`zig c++` sums up all headers of each source for a cache of its own, on every call; ccache does that already.
So zig is asked once how it would call clang for TARGET (`-###`), and COMPILER, a script, gives clang the same
headers and definitions.
"""

import os
import shlex
import subprocess
import sys
import tempfile


def main(zig, target, compiler):
    with tempfile.TemporaryDirectory() as folder:  # zig leaves an empty object file where it is called
        asked = subprocess.run([zig, "c++", "-target", target, "-fno-sanitize=all", "-###", "-c", "-x", "c++", "/dev/null"],
                               cwd=folder, capture_output=True, text=True, timeout=60)
    calls = [line for line in asked.stderr.splitlines() if '"-cc1"' in line]
    if asked.returncode != 0 or len(calls) != 1:
        sys.exit(f"zig does not tell how it calls clang for {target}:\n{asked.stderr}")
    words = shlex.split(calls[0])
    options = []
    for option, value in zip(words, words[1:]):
        if option == "-isystem":
            options += [option, os.path.normpath(os.path.join(folder, value))]
        elif option == "-D":
            options += [option + value]
    processor = words[words.index("-target-cpu") + 1]
    architecture, system = target.split("-", 1)
    name = system.replace("macos.", "macos", 1)
    command = [zig, "clang", "--driver-mode=g++", f"--target={architecture}-apple-{name}", f"-mcpu={processor}",
               "-nostdinc", "-nostdinc++", *options]
    text = f"#!/bin/sh\nexec {shlex.join(command)} \"$@\"\n"
    with open(compiler, "w") as file:
        file.write(text)
    os.chmod(compiler, 0o755)


if __name__ == "__main__":
    main(*sys.argv[1:])
