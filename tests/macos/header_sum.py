"""Prints a hash over the contents of all files that a dependency file names, wherever they stand: what a
compiler cache takes for a precompiled header, whose own bytes hold paths and times."""

import hashlib
import re
import sys

with open(sys.argv[1]) as file:
    text = file.read().replace("\\\n", " ")
names = re.split(r"(?<!\\)\s+", text.split(":", 1)[1].strip())
digest = hashlib.sha256()
for name in names:
    with open(name.replace("\\ ", " "), "rb") as file:
        digest.update(hashlib.sha256(file.read()).digest())
print(digest.hexdigest())
