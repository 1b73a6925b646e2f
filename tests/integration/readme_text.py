"""The commands that a README shows, in its order."""

import re

PROGRAMS = ("clusterctl", "agentd", "deploy/", "sudo clusterctl")


class Readme:
    """commands: what the README tells its reader to type; shown: lines that a program prints, as the README
    shows them; snippets: the Python code."""

    def __init__(self, text):
        self.commands, self.shown, self.snippets = [], [], []
        language, block = None, []
        for line in text.splitlines():
            if not line.startswith("```"):
                if language is None:
                    self.read_prose(line)
                else:
                    block.append(line)
                continue
            if language is None:
                language, block = line[3:].strip(), []
                continue
            self.read_block(language, block)
            language = None
        if language is not None:
            raise ValueError("a fenced block is not closed")

    def read_block(self, language, lines):
        if language == "python":
            self.snippets.append("\n".join(lines) + "\n")
        elif language:
            raise ValueError(f"a fenced block of '{language}': say here what a test does with it")
        else:
            for line in filter(str.strip, lines):
                self.read_line(line)

    def read_line(self, line):
        if line.startswith("== "):
            self.shown.append(line)
            return
        command, _, comment = line.partition("  #")
        self.add(command.strip())
        # Subcommands of the same program that the comment names.
        for quoted in re.findall(r"(?<!\w)'([a-z][^']* [^']*)'(?!\w)", comment):
            self.add(f"{command.split()[0]} {quoted}")

    def read_prose(self, line):
        for code in re.findall(r"`([^`]+)`", line):
            if code.startswith(PROGRAMS) and " " in code:
                self.add(code)

    def add(self, command):
        if command not in self.commands:
            self.commands.append(command)


def folder_commands(text):
    """Command lines of a folder's README: in prose, and in fenced blocks where a line begins with a program."""
    found, fenced = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced:
            command = line.partition("  #")[0].strip().removeprefix("$ ")
            if command.startswith(PROGRAMS):
                found.append(command)
        else:
            found += [code for code in re.findall(r"`([^`]+)`", line) if code.startswith(PROGRAMS) and " " in code]
    return found


def subcommand_and_flags(command):
    """(["clusterctl", "model", "load"], ["--draft-model"]) of "clusterctl model load NAME --draft-model SMALL"."""
    words, flags = [], re.findall(r"(?<!\S)--[a-z][a-z-]*", command)
    for word in command.removeprefix("sudo ").split():
        if not re.fullmatch(r"[a-z][a-z/-]*", word):
            break
        words.append(word)
    return words, flags
