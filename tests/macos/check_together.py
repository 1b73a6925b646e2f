"""Checks sources at once, each as if it were alone.

    check_together.py OUT SOURCE… -- COMMAND…

COMMAND takes options and a source, as clang does. What sources have in common is read once where one source includes
them all. Where that one is refused (two of them may well have a name in common that each keeps to itself), each is
checked by itself, and that alone counts. OUT is touched where all are right; OUT.d says what they depend on.
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

    together = f"{out}.cc"
    with open(together, "w") as file:
        file.writelines(f'#include "{source}"\n' for source in sources)
    refused = check(together, f"{out}.d", stderr=subprocess.DEVNULL)
    if refused:
        print("each by itself:", *sources)
        refused = 0
        rules = []
        for source in sources:
            refused |= check(source, f"{out}.one.d")
            if not refused:
                with open(f"{out}.one.d") as file:
                    rules.append(file.read())
        with open(f"{out}.d", "w") as file:
            file.write("".join(rules))
    if refused == 0:
        with open(out, "w"):
            os.utime(out)
    return refused


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
