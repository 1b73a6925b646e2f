"""Has coding agents work in a folder, each with a gateway of its own; see `run`.

    check.py BUILD_DIR FOLDER [AGENT ...]

What an agent needs to find its models here is what docs/coding-agents.md says of it. The model behind the gateway reads a
file, edits it, writes another one whose text is hard to quote, runs a command, and ends with what the last tool said:
each step shows in the folder or in what the agent prints.
"""

import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

TASK = "In notes.md, the bell must ring at dawn. Then write hard.txt and show both."
NOTES = "# Notes\n\nThe bell rings at noon.\n"
EDITED = NOTES.replace("noon", "dawn")
HARD = "\"quotes\" 'and' \\back\\slashes\\n\n\ttabs, <b>tags</b> &amp; </tool_call>, 7°, 雪, {\"a\": [1]}\n"
SHOW = "cat notes.md hard.txt && echo shown-$((40 + 2))"
LIMIT_S = 180


class Place:
    """An agent's folders, and the gateway that it is to use."""

    def __init__(self, build, name, turns, replies=()):
        self.top = pathlib.Path(tempfile.mkdtemp(prefix=f"macrame-{name}-"))
        self.home, self.work = self.top / "home", self.top / "work"
        self.home.mkdir()
        self.work.mkdir()
        (self.work / "notes.md").write_text(NOTES)
        for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "First"]):
            subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *command],
                           cwd=self.work, check=True, env=self.environment())
        script = {"turns": turns(self.work), "replies": list(replies),
                  "last": "The last tool said: $RESULT"}
        (self.top / "script.json").write_text(json.dumps(script))
        self.gateway = subprocess.Popen(
            [f"{build}/tests/gateway_with_script", self.top / "script.json"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{int(self.gateway.stdout.readline())}"

    def environment(self, **more):
        """Nothing of who runs this check reaches an agent: no key, no settings."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "TERM": "dumb",
                "LANG": "C.UTF-8", "TMPDIR": str(self.top), "DO_NOT_TRACK": "1", **more}

    def run(self, command, **more):
        ran = subprocess.run(command, cwd=self.work, env=self.environment(**more), text=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)
        if ran.returncode != 0:
            raise AssertionError(f"ended with {ran.returncode}:\n{ran.stdout[-4000:]}")
        return ran.stdout

    def close(self):
        self.gateway.stdin.close()
        self.gateway.wait(timeout=20)
        shutil.rmtree(self.top, ignore_errors=True)


def call(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}


def claude_turns(work):
    return [
        {"reasoning": "I have to see it first.", "text": "I look.",
         **call("Read", file_path=f"{work}/notes.md")},
        call("Edit", file_path=f"{work}/notes.md", old_string="noon", new_string="dawn"),
        # A tool that is held back until it is asked for.
        call("ToolSearch", query="select:CronList"),
        call("CronList"),
        call("Write", file_path=f"{work}/hard.txt", content=HARD),
        call("Bash", command=SHOW, description="Show both files"),
    ]


def claude(place, path):
    return place.run(
        [path, "-p", TASK, "--permission-mode", "acceptEdits",
         "--allowedTools", "Bash"],
        ANTHROPIC_BASE_URL=place.url, ANTHROPIC_API_KEY="unused",
        ANTHROPIC_MODEL="agent-qwen3_coder", CLAUDE_CODE_MAX_CONTEXT_TOKENS="131072",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")


def codex_turns(_):
    patch = ("apply_patch <<'END'\n*** Begin Patch\n*** Update File: notes.md\n@@\n"
             "-The bell rings at noon.\n+The bell rings at dawn.\n*** End Patch\nEND\n")
    return [
        {"reasoning": "I have to see it first.", "text": "I look.",
         **call("exec_command", cmd="cat notes.md")},
        call("exec_command", cmd=patch),
        # A tool of a namespace.
        call("multi_agent_v1__close_agent", target="nobody"),
        call("exec_command", cmd=f"cat >hard.txt <<'END'\n{HARD}END\n"),
        call("exec_command", cmd=SHOW),
    ]


def codex(place, path):
    (place.home / ".codex").mkdir()
    (place.home / ".codex/config.toml").write_text(f"""
model = "agent-harmony"
model_context_window = 131072
model_provider = "macrame"
web_search = "disabled"

[model_providers.macrame]
name = "Macrame"
base_url = "{place.url}/v1"
wire_api = "responses"
""")
    # The sandbox asks for more than a machine may give to a test that runs in one already.
    return place.run([path, "exec", "--sandbox",
                      "danger-full-access", TASK])


def opencode_turns(work):
    return [
        {"reasoning": "I have to see it first.", "text": "I look.",
         **call("read", filePath=f"{work}/notes.md")},
        call("edit", filePath=f"{work}/notes.md", oldString="noon", newString="dawn"),
        call("write", filePath=f"{work}/hard.txt", content=HARD),
        call("bash", command=SHOW, description="Show both files"),
    ]


def opencode(place, path):
    (place.work / "opencode.json").write_text(json.dumps({
        "provider": {"macrame": {
            "npm": "@ai-sdk/openai-compatible", "name": "Macrame",
            "options": {"baseURL": f"{place.url}/v1"},
            "models": {"agent-hermes": {"limit": {"context": 131072, "output": 32768}}}}}}))
    return place.run(
        [path, "run", "--model", "macrame/agent-hermes", TASK],
        OPENCODE_DISABLE_AUTOUPDATE="1", OPENCODE_DISABLE_MODELS_FETCH="1")


def aider_turns(_):
    return []


# It offers no tools: models write what is to change into their text.
AIDER_REPLIES = [{"to": "SEARCH/REPLACE", "text": "notes.md\n```\n<<<<<<< SEARCH\nThe bell rings at noon.\n=======\n"
                  "The bell rings at dawn.\n>>>>>>> REPLACE\n```\n\n"
                  f"hard.txt\n```\n<<<<<<< SEARCH\n=======\n{HARD}>>>>>>> REPLACE\n```\n"}]


def aider(place, path):
    return place.run(
        [path, "--model", "openai/agent-hermes", "--edit-format", "diff",
         "--message", TASK, "--yes-always", "--no-auto-commits", "--no-check-update",
         "--analytics-disable", "--no-show-model-warnings", "--no-show-release-notes", "notes.md"],
        OPENAI_API_BASE=f"{place.url}/v1", OPENAI_API_KEY="unused",
        LITELLM_LOCAL_MODEL_COST_MAP="True")


PROGRAMS = {"claude": "@anthropic-ai/claude-code-*/claude", "codex": "@openai/codex/bin/codex.js",
            "opencode": "opencode-*/bin/opencode", "aider": "../aider/bin/aider"}
AGENTS = {"claude": (claude, claude_turns, []), "codex": (codex, codex_turns, []),
          "opencode": (opencode, opencode_turns, []),
          "aider": (aider, aider_turns, AIDER_REPLIES)}


def program(folder, name):
    """None: it is not there for this kind of machine."""
    found = sorted(glob.glob(f"{folder}/node_modules/{PROGRAMS[name]}"))
    return found[0] if found else None


def check(build, path, name):
    agent, turns, replies = AGENTS[name]
    begun = time.monotonic()
    place = Place(build, name, turns, replies)
    try:
        told = agent(place, path)
        assert (place.work / "notes.md").read_text() == EDITED, told[-4000:]
        assert (place.work / "hard.txt").read_text() == HARD, told[-4000:]
        # Without tools there is no command whose output could come back.
        if replies is not AIDER_REPLIES:
            assert "The last tool said:" in told and "shown-42" in told, told[-4000:]
    finally:
        place.close()
    print(f"{name}: did its work ({time.monotonic() - begun:.0f} s)", flush=True)


def main():
    build, folder, *wanted = sys.argv[1:]
    there = {name: program(folder, name) for name in wanted or AGENTS}
    there = {name: path for name, path in there.items() if path is not None}
    if not wanted and len(there) < 3:
        print(f"only {', '.join(there)} could be fetched")
        sys.exit(77)
    for name, path in there.items():
        try:
            check(build, path, name)
        except BaseException:
            print(f"FAILED: {name}")
            raise
    print(f"coding agents: {len(there)} of {len(AGENTS)} did their work")


if __name__ == "__main__":
    main()
