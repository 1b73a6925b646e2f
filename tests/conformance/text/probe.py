"""What the comparisons share: the text library at the end of a pipe, and a count of differences."""

import datetime
import json
import subprocess
import sys

NOW = 1_763_596_800  # 2025-11-20T00:00:00, for templates that print the date
SHOWN_MAX = 20


class FixedDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


class Probe:
    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"text_probe died on {json.dumps(request)[:400]}")
        return json.loads(line)


class Tally:
    def __init__(self):
        self.compared = 0
        self.different = 0
        self.refused = 0
        self.open = 0

    def equal(self, what, ours, theirs):
        self.compared += 1
        if ours == theirs:
            return
        self.different += 1
        if self.different <= SHOWN_MAX:
            at = 0  # where they part
            if type(ours) is type(theirs) and isinstance(ours, (str, list)):
                same = [a == b for a, b in zip(ours, theirs)]
                at = max(0, (same.index(False) if False in same else len(same)) - 10)
                ours, theirs = ours[at:at + 60], theirs[at:at + 60]
            print(f"DIFFERENT {what[:500]}\n  from {at}\n  ours   {str(ours)[:700]!r}\n"
                  f"  theirs {str(theirs)[:700]!r}")
