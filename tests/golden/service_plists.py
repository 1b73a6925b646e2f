#!/usr/bin/env python3
"""Reads the golden property lists as Apple's format asks for it (plistlib), and holds what launchd makes of them.

Run at the repository's root. Exit 0: all held.
"""

import plistlib
import sys

FOLDER = "tests/golden/service/"
ERRORS = "/Library/Logs/Macrame/agentd.errors.log"


def expected(user):
    return {
        "Label": "macrame.agentd",
        "ProgramArguments": ["/opt/macrame/bin/agentd", "--config", "/etc/macrame/agentd.yaml",
                             "--launchd", "--log-to-stderr=false"],
        "UserName": user,
        "InitGroups": True,
        "WorkingDirectory": "/",
        "EnvironmentVariables": {
            "PATH": "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": 45,
        "ProcessType": "Interactive",
        "SoftResourceLimits": {"NumberOfFiles": 16384},
        "HardResourceLimits": {"NumberOfFiles": 16384},
        "Umask": 0o77,
        "StandardOutPath": ERRORS,
        "StandardErrorPath": ERRORS,
    }


def main():
    wrong = 0
    for name, user in (("macrame.agentd.plist", "bess"), ("odd-user.plist", 'a<b>&"c"')):
        with open(FOLDER + name, "rb") as file:
            found = plistlib.load(file)
        if found != expected(user):
            print(f"{name} says {found}", file=sys.stderr)
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
