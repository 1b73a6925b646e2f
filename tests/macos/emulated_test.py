"""The planner of the archive for Macs, held to this machine's own.

    emulated_test.py ARCHIVE WORK      WORK: the folder that deploy/package macos builds in

Its code runs emulated (emulated/run_macho.py), with LLVM's libc++ and none of Apple's libraries. It is asked what
clusterctl asks a planner, and gives the same answers. Exit 77: skipped, since a tool is missing.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EMULATED = os.path.join(ROOT, "tests/macos/emulated")
PROGRAMS = os.path.join(ROOT, "build/release/bin")
MINIS = os.path.join(ROOT, "deploy/catalogue/clusters/three-minis.yaml")
TWO_STUDIOS = ("--buy", "2x mac-studio-m3-ultra-256gb")
SKIPPED = 77
QUESTION_SECONDS, RUNTIME_SECONDS = 300, 1800
# Two compilers may round last bits differently where one of them fuses a product and a sum. planner/CMakeLists.txt
# forbids it; archives that are older than that are held to this.
TOLERANCE = 1e-12
FIELD = re.compile(r"(\s*\w+: )([-+.\w]+)")


def decoded(answer):
    """An answer as protobuf's text, a field a line."""
    done = subprocess.run(["protoc", "-I", os.path.join(ROOT, "proto"), "--decode=macrame.v1.PlannerAnswer",
                           "macrame/v1/planner.proto"], input=answer, capture_output=True, timeout=60, check=True)
    return done.stdout.decode().splitlines()


def is_nearly(one, other):
    """Are two lines of decoded() one field with nearly the same number?"""
    fields = FIELD.fullmatch(one), FIELD.fullmatch(other)
    if not all(fields) or fields[0][1] != fields[1][1] or fields[0][2].isdigit() and fields[1][2].isdigit():
        return False
    try:
        a, b = float(fields[0][2]), float(fields[1][2])
    except ValueError:
        return False
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b))


class EmulatedPlanner(unittest.TestCase):
    archive = runtime = python = ""

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = temporary.name
        cls.planner = os.path.join(cls.folder, "planner")
        with tarfile.open(cls.archive) as tar:
            member = next(member for member in tar if member.name.endswith("/bin/planner"))
            with tar.extractfile(member) as source, open(cls.planner, "wb") as out:
                out.write(source.read())

    def here(self, question):
        return subprocess.run([os.path.join(PROGRAMS, "planner")], input=question, capture_output=True, timeout=60)

    def emulated(self, question):
        words = ["--runtime", self.runtime, "--limit", str(QUESTION_SECONDS), self.planner]
        return subprocess.run([self.python, os.path.join(EMULATED, "run_macho.py"), *words], input=question,
                              capture_output=True, timeout=QUESTION_SECONDS + 30)

    def asked_by_clusterctl(self, *words):
        """The question that clusterctl hands to a planner for these words."""
        question, keeper = os.path.join(self.folder, "question"), os.path.join(self.folder, "keeper")
        with open(keeper, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\ntee '{question}' | '{PROGRAMS}/planner'\n")
        os.chmod(keeper, 0o755)
        environment = {**os.environ, "HOME": self.folder, "MACRAME_PLANNER": keeper}
        done = subprocess.run([os.path.join(PROGRAMS, "clusterctl"), *words], capture_output=True, text=True,
                              timeout=120, env=environment)
        with open(question, "rb") as file:
            content = file.read()
        os.remove(question)
        self.assertTrue(content, done.stderr)
        return content

    def assert_same(self, question):
        """Both planners answer alike; returns the answer, decoded."""
        here, there = self.here(question), self.emulated(question)
        self.assertEqual((there.returncode, there.stderr), (here.returncode, here.stderr))
        answer = decoded(here.stdout)
        if there.stdout != here.stdout:
            lines = decoded(there.stdout)
            wrong = [pair for pair in zip(answer, lines) if pair[0] != pair[1] and not is_nearly(*pair)]
            self.assertEqual(wrong, [], "here, emulated")
            self.assertEqual(len(lines), len(answer))
        return "\n".join(answer)

    def test_an_empty_question(self):
        self.assert_same(b"")

    def test_what_is_no_question_is_refused(self):
        there = self.emulated(b"hello")
        self.assertEqual(there.returncode, 2)
        self.assertEqual((there.stdout, there.stderr), (b"", self.here(b"hello").stderr))
        self.assertIn(b"not a question", there.stderr)

    def test_a_plan(self):
        answer = self.assert_same(self.asked_by_clusterctl("plan", "Qwen3-8B-4bit", "--cluster", MINIS))
        self.assertIn("tokens_per_second", answer)

    def test_a_plan_of_a_model_with_experts(self):
        answer = self.assert_same(self.asked_by_clusterctl("plan", "Qwen3-30B-A3B-4bit", "--cluster", MINIS))
        self.assertIn("each expert is cut by width", answer)

    def test_cables_of_machines_to_buy(self):
        words = ("topology", "advise", *TWO_STUDIOS, "--model", "Qwen3-8B-4bit")
        answer = self.assert_same(self.asked_by_clusterctl(*words))
        self.assertIn("tokens_per_second_without", answer)

    def test_capacity_of_machines_to_buy(self):
        answer = self.assert_same(self.asked_by_clusterctl("capacity", *TWO_STUDIOS, "--models", "Qwen3-8B-4bit"))
        self.assertIn("joules_per_token", answer)

    def test_a_damaged_description_is_refused(self):
        """yaml-cpp throws here: the program's unwind tables are used."""
        damaged = os.path.join(self.folder, "damaged.yaml")
        with open(damaged, "w", encoding="utf-8") as file:
            file.write("nodes:\n- {name: a, machine: [\n")
        answer = self.assert_same(self.asked_by_clusterctl("plan", "Qwen3-8B-4bit", "--cluster", damaged))
        self.assertIn("end of sequence flow not found", answer)


if __name__ == "__main__":
    if len(sys.argv) != 3 or not os.path.isfile(sys.argv[1]):
        sys.exit("usage: emulated_test.py ARCHIVE WORK")
    work = os.path.abspath(sys.argv[2])
    if not os.path.exists(os.path.join(PROGRAMS, "planner")) or shutil.which("protoc") is None:
        print("emulated_test.py: skipped; protoc or build/release/bin/planner is missing", file=sys.stderr)
        sys.exit(SKIPPED)
    built = subprocess.run([os.path.join(EMULATED, "build_runtime"), work], stdout=subprocess.PIPE, text=True,
                           timeout=RUNTIME_SECONDS)
    if built.returncode == SKIPPED:
        print("emulated_test.py: skipped, as said above", file=sys.stderr)
    if built.returncode:
        sys.exit(built.returncode)
    EmulatedPlanner.archive, EmulatedPlanner.runtime = os.path.abspath(sys.argv[1]), built.stdout.strip()
    EmulatedPlanner.python = os.path.join(work, "venv/bin/python")
    unittest.main(argv=sys.argv[:1])
