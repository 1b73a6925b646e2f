"""Writes a compiler for Macs: clang as it is in zig, told what zig tells it.

    compiler.py ZIG TARGET c|c++ COMPILER [LINKER]

`zig c++` sums up all headers of each source for a cache of its own, on every call; ccache does that already.
So zig is asked once how it would call clang for TARGET (`-###`), and COMPILER, a script, gives clang the same
headers and definitions. One differs: zig links a libc++ of its own into every program, a Mac has one in its
system. So the headers are told to keep to what the system of TARGET has of it, and what is newer is an error.
Where COMPILER is to link, it calls LINKER with the same words; without a LINKER it fails.
"""

import os
import shlex
import subprocess
import sys
import tempfile

AVAILABILITY = "-D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS"


def main(zig, target, language, compiler, linker="false"):
    with tempfile.TemporaryDirectory() as folder:  # zig leaves an empty object file where it is called
        asked = subprocess.run([zig, {"c": "cc", "c++": "c++"}[language], "-target", target, "-fno-sanitize=all",
                                "-###", "-c", "-x", language, "/dev/null"],
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
    if language == "c++":
        if f"{AVAILABILITY}=0" not in options:
            sys.exit("zig's libc++ no longer says whether it keeps to what a system has")
        options[options.index(f"{AVAILABILITY}=0")] = f"{AVAILABILITY}=1"
        # gRPC 1.51 has `template` where newer clangs want arguments behind it.
        options.append("-Wno-missing-template-arg-list-after-template-kw")
    # Programs say where in their sources a fault is, not where on this machine those are.
    own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    options += [f"-ffile-prefix-map={place}/=" for place in (os.path.dirname(os.path.dirname(compiler)), own)]
    processor = words[words.index("-target-cpu") + 1]
    architecture, system = target.split("-", 1)
    name = system.replace("macos.", "macos", 1)
    compile_with = shlex.join([zig, "clang", f"--driver-mode={'g++' if language == 'c++' else 'gcc'}",
                               f"--target={architecture}-apple-{name}", f"-mcpu={processor}", "-nostdinc", "-nostdinc++",
                               *options])
    text = f"""#!/bin/sh
for word in "$@"; do
  case $word in
    -c|-S|-E|-M|-MM|-fsyntax-only|-x|--version|-v|-dM|-print-*|-dump*) exec {compile_with} "$@" ;;
  esac
done
exec {shlex.quote(linker)} "$@"
"""
    with open(compiler, "w") as file:
        file.write(text)
    os.chmod(compiler, 0o755)


if __name__ == "__main__":
    main(*sys.argv[1:])
