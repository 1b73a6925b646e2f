"""Checks several sources at once, and each by itself where that fails.

    check_together.py OUT SOURCE… -- COMMAND…

COMMAND takes options and a source, as clang does. What sources have in common is read once where one source includes
them all. Where that one is refused (two of them may well have a name in common that each keeps to itself), each is
checked by itself, and that alone counts. Of several at once clang says nothing of what it says of a main file only
(functions and constants that nobody uses, which GCC finds), nor that a source forgot what one before it includes.
OUT is touched where all are right; OUT.d says what they depend on.
"""

import os
import subprocess
import sys


def main(arguments):
    split = arguments.index("--")
    out, *sources = arguments[:split]
    command = arguments[split + 1:]

    def check(source, dependencies, **streams):
        return subprocess.run([*command, "-MD", "-MF", dependencies, "-MT", out, source], check=False, **streams).returncode

    refused = len(sources) == 1
    if not refused:
        together = f"{out}.cc"
        with open(together, "w") as file:
            file.writelines(f'#include "{source}"\n' for source in sources)
        refused = check(together, f"{out}.d", stderr=subprocess.DEVNULL) != 0
        rules = [] if refused else [open(f"{out}.d").read()]
        if refused:
            print("each by itself:", *sources)
    if refused:
        refused, rules = False, []
        for source in sources:
            refused |= check(source, f"{out}.one.d") != 0
            if not refused:
                with open(f"{out}.one.d") as file:
                    rules.append(file.read())
    if not refused:
        with open(f"{out}.d", "w") as file:
            # It was written here, later than this check began: ninja would check again each time.
            file.write("".join(rules).replace(f" {out}.cc ", " ", 1))
        with open(out, "w"):
            os.utime(out)
    return int(refused)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
