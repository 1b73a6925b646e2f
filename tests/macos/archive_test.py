"""The archive for Macs, held to what a Mac will ask of it.

    archive_test.py ARCHIVE WORK      WORK: the folder that deploy/package macos builds in

Programs and libraries are read with LIEF: architecture, oldest macOS, libraries and where they are looked for, every
symbol that is taken from elsewhere, signatures. install.sh runs against commands that stand for a Mac's. Nothing of the
programs is run here; emulated_test.py runs the planner.
"""

import contextlib
import glob
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest

import lief

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STUBS = os.path.join(ROOT, "deploy/macos/stubs")
PROGRAMS = ("agentd", "clusterctl", "planner", "rankd")
MACOS = (14, 0)
# What each macOS since 14 has.
SYSTEM = {"/usr/lib/libSystem.B.dylib", "/usr/lib/libc++.1.dylib", "/usr/lib/libsqlite3.dylib", "/usr/lib/libz.1.dylib",
          "/usr/lib/libedit.3.dylib"}
FRAMEWORK = re.compile(r"/System/Library/Frameworks/(\w+)\.framework/Versions/\w/\1")
SIGNATURE_MAGIC, CODE_DIRECTORY = 0xFADE0CC0, 0xFADE0C02
ADHOC = 0x2
DYNAMIC_LOOKUP, SELF = 0xFE, 0


def exported_by(stub):
    """The symbols of a text stub, for any architecture of Apple's own."""
    with open(stub, encoding="utf-8") as file:
        text = file.read()
    found = set()
    for kind, names in re.findall(r"^\s*((?:weak-|thread-local-)?symbols|objc-\w+):\s*\[(.*?)\]", text, re.S | re.M):
        if "symbols" in kind:
            found |= {name.strip().strip("'\"") for name in names.split(",")}
    return found


def pages_are_as_signed(path):
    """Whether each page has the hash that its signature says, and the signature's flags."""
    with open(path, "rb") as file:
        data = file.read()
    at = lief.MachO.parse(path).at(0).code_signature.data_offset
    magic, _, count = struct.unpack_from(">III", data, at)
    if magic != SIGNATURE_MAGIC:
        return False, 0
    for index in range(count):
        _, offset = struct.unpack_from(">II", data, at + 12 + 8 * index)
        magic, _, _, flags, hashes, _, _, pages, limit, size, kind, _, page = struct.unpack_from(">IIIIIIIIIBBBB", data, at + offset)
        if magic != CODE_DIRECTORY:
            continue
        begin = at + offset + hashes
        for number in range(pages):
            piece = data[number << page:min((number + 1) << page, limit)]
            if hashlib.sha256(piece).digest()[:size] != data[begin + number * size:begin + (number + 1) * size]:
                return False, flags
        return kind == 2, flags
    return False, 0


class Archive(unittest.TestCase):
    archive = work = tree = ""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        with tarfile.open(cls.archive) as tar:
            names = tar.getnames()
            # Of Python 3.11.4 and later.
            tar.extractall(cls.temporary.name, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        cls.tops = {name.split("/")[0] for name in names}
        cls.tree = os.path.join(cls.temporary.name, sorted(cls.tops)[0])
        cls.programs = {name: lief.MachO.parse(os.path.join(cls.tree, "bin", name)).at(0) for name in PROGRAMS}
        cls.mlx = {name: lief.MachO.parse(os.path.join(cls.tree, "mlx/lib", name)).at(0)
                   for name in ("libmlx.dylib", "libjaccl.dylib")}

    def test_one_folder_with_all_that_is_installed(self):
        self.assertEqual(len(self.tops), 1)
        self.assertEqual(sorted(os.listdir(os.path.join(self.tree, "bin"))), sorted(PROGRAMS))
        for path in ("mlx/lib/mlx.metallib", "install.sh", "share/doc/LICENSE", "share/doc/NOTICE", "share/man/man1/clusterctl.1",
                     "share/completions/clusterctl.zsh", "share/com.macrame.wired-limit.plist"):
            self.assertGreater(os.path.getsize(os.path.join(self.tree, path)), 100, path)

    def test_its_sums_are_right(self):
        with open(self.archive + ".sha256", encoding="utf-8") as file, open(self.archive, "rb") as archive:
            self.assertEqual(file.read().split()[0], hashlib.sha256(archive.read()).hexdigest())
        done = subprocess.run(["shasum", "-a", "256", "-c", "SHA256SUMS"], cwd=self.tree, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(self.tree, "SHA256SUMS"), encoding="utf-8") as file:
            summed = {line.split("  ", 1)[1].strip()[2:] for line in file}
        there = {os.path.relpath(path, self.tree) for path in glob.glob(self.tree + "/**", recursive=True) if os.path.isfile(path)}
        self.assertEqual(summed, there - {"SHA256SUMS"})

    def test_the_formula_has_its_sum_and_is_ruby(self):
        formula = os.path.join(os.path.dirname(self.archive), "macrame.rb")
        with open(formula, encoding="utf-8") as file:
            text = file.read()
        with open(self.archive + ".sha256", encoding="utf-8") as file:
            self.assertIn(f'sha256 "{file.read().split()[0]}"', text)
        self.assertNotIn("@", text)
        for path in re.findall(r'"(share/[^"*]+|bin|mlx)"', text):
            self.assertTrue(os.path.exists(os.path.join(self.tree, path)), path)
        if shutil.which("ruby") is None:
            self.skipTest("ruby is not installed: the formula's syntax is not checked")
        done = subprocess.run(["ruby", "-c", formula], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_programs_are_for_apple_silicon_and_an_old_enough_macos(self):
        of_mlx = tuple(self.mlx["libmlx.dylib"].build_version.minos[:2])
        for name, binary in self.programs.items():
            with self.subTest(name):
                self.assertEqual(binary.header.cpu_type, lief.MachO.Header.CPU_TYPE.ARM64)
                self.assertEqual(binary.header.file_type, lief.MachO.Header.FILE_TYPE.EXECUTE)
                self.assertTrue(binary.is_pie)
                self.assertEqual(binary.build_version.platform, lief.MachO.BuildVersion.PLATFORMS.MACOS)
                self.assertEqual(tuple(binary.build_version.minos[:2]), of_mlx if name == "rankd" else MACOS)

    def test_libraries_are_those_of_macos_or_beside_the_programs(self):
        for name, binary in self.programs.items():
            asked = {library.name for library in binary.libraries}
            with self.subTest(name):
                other = {path for path in asked - SYSTEM if not FRAMEWORK.fullmatch(path)}
                self.assertEqual(other, {"@rpath/libmlx.dylib"} if name == "rankd" else set())
                self.assertIn("/usr/lib/libc++.1.dylib", asked, "its exceptions are MLX's own")
                rpaths = [command.path for command in binary.commands if isinstance(command, lief.MachO.RPathCommand)]
                self.assertEqual(rpaths, ["@loader_path/../mlx/lib"] if name == "rankd" else [])

    def test_mlxs_libraries_are_found_from_rankd(self):
        asked = {library.name for library in self.mlx["libmlx.dylib"].libraries}
        own = {path for path in asked if path.startswith("@")}
        self.assertEqual(own - {"@rpath/libmlx.dylib"}, {"@rpath/libjaccl.dylib"})
        for binary in self.mlx.values():
            self.assertEqual(binary.header.cpu_type, lief.MachO.Header.CPU_TYPE.ARM64)
            self.assertTrue(all(library.name.startswith(("@rpath/", "/usr/lib/", "/System/Library/")) for library in binary.libraries))

    def test_every_symbol_is_there(self):
        known = {"/usr/lib/libSystem.B.dylib": exported_by(os.path.join(self.work, "libsystem/libSystem.tbd"))}
        for stub in glob.glob(STUBS + "/**/*.tbd", recursive=True):
            with open(stub, encoding="utf-8") as file:
                known[re.search(r"install-name:\s*'(.+)'", file.read()).group(1)] = exported_by(stub)
        known["@rpath/libmlx.dylib"] = {symbol.name for symbol in self.mlx["libmlx.dylib"].exported_symbols}
        for name, binary in self.programs.items():
            libraries = [library.name for library in binary.libraries]
            missing, taken = [], 0
            for symbol in binary.imported_symbols:
                ordinal = symbol.library_ordinal
                self.assertNotIn(ordinal, (SELF, DYNAMIC_LOOKUP), f"{name}: {symbol.name} is of no library")
                taken += 1
                if symbol.name not in known[libraries[ordinal - 1]]:
                    missing.append((symbol.name, libraries[ordinal - 1]))
            with self.subTest(name):
                self.assertGreater(taken, 50)
                self.assertEqual(missing, [])

    def test_signatures_are_whole(self):
        for name in PROGRAMS:
            whole, flags = pages_are_as_signed(os.path.join(self.tree, "bin", name))
            self.assertTrue(whole, f"{name}: a Mac kills what was changed after it was signed")
            self.assertTrue(flags & ADHOC, name)

    def test_nothing_tells_where_it_was_built(self):
        for name in PROGRAMS:
            with open(os.path.join(self.tree, "bin", name), "rb") as file:
                data = file.read()
            for place in {ROOT, self.work, os.path.expanduser("~/.cargo")} - {"/"}:
                self.assertFalse(os.fsencode(place) in data, f"{name} has {place} in it")

    def test_the_bill_of_materials_has_versions_and_every_licence_has_its_text(self):
        with open(os.path.join(self.tree, "share/doc/sbom.cdx.json"), encoding="utf-8") as file:
            components = json.load(file)["components"]
        names = {component["name"]: component.get("version") for component in components}
        for name in ("abseil-cpp", "c-ares", "grpc", "openssl", "protobuf", "re2", "mlx", "tokenizers"):
            self.assertTrue(names.get(name), f"{name} without a version")
        for name in ("rdma-core", "libedit", "sqlite", "gcc runtime libraries"):
            self.assertNotIn(name, names, "macOS's own, or not in it")
        texts = os.listdir(os.path.join(self.tree, "share/doc/licences"))
        with open(os.path.join(ROOT, "deploy/third-party.json"), encoding="utf-8") as file:
            libraries = json.load(file)["libraries"]
        for library in libraries:
            if library.get("macos") is False:
                continue
            begins = library.get("macos") or {"oniguruma": "onig_sys-", "rust standard library": "rust."}.get(
                library["name"], "dashboard" if "npm" in library else library["name"])
            self.assertTrue(any(text.startswith(begins) for text in texts), f"no text of {library['name']}")
        self.assertTrue(any(text.startswith("onig_sys-") and text.endswith("COPYING") for text in texts))
        self.assertTrue(any(text.startswith("tokenizers-") for text in texts))


class FakeMac:
    """A folder of commands that answer as a Mac's do."""

    def __init__(self, folder, version="26.3", machine="arm64", system="Darwin", user="0"):
        self.folder = folder
        for name, answers in (("sw_vers", version), ("uname", f'$(case $1 in -m) echo {machine} ;; *) echo {system} ;; esac)'),
                              ("id", user)):
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(f'#!/bin/sh\necho "{answers}"\n')
            os.chmod(path, 0o755)
        xattr = os.path.join(folder, "xattr")
        with open(xattr, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "$*" >>{folder}/marks\n')
        os.chmod(xattr, 0o755)

    def environment(self):
        return {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}


class Install(unittest.TestCase):
    """install.sh, with a clusterctl that says what it is asked."""

    archive = ""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.tree = os.path.join(self.folder, "tree")
        os.makedirs(os.path.join(self.tree, "bin"))
        with tarfile.open(self.archive) as tar:
            script = next(member for member in tar.getmembers() if member.name.endswith("/install.sh"))
            with contextlib.closing(tar.extractfile(script)) as source, open(os.path.join(self.tree, "install.sh"), "wb") as out:
                shutil.copyfileobj(source, out)
        os.chmod(os.path.join(self.tree, "install.sh"), 0o755)
        stand_in = os.path.join(self.tree, "bin/clusterctl")
        with open(stand_in, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\necho "clusterctl $*"\n')
        os.chmod(stand_in, 0o755)
        subprocess.run("shasum -a 256 bin/clusterctl >SHA256SUMS", shell=True, cwd=self.tree, check=True, timeout=20)

    def install(self, *words, **mac):
        fake = os.path.join(self.folder, "fake")
        shutil.rmtree(fake, ignore_errors=True)
        os.makedirs(fake)
        return subprocess.run([os.path.join(self.tree, "install.sh"), *words], capture_output=True, text=True, timeout=20,
                              env=FakeMac(fake, **mac).environment())

    def test_it_makes_the_agent_a_service(self):
        done = self.install("--secret", "desk.secret")
        self.assertEqual((done.returncode, done.stdout), (0, "clusterctl service install --secret desk.secret\n"), done.stderr)

    def test_check_takes_a_browsers_marks_and_changes_nothing_else(self):
        done = self.install("--check", user="501")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("can run it", done.stdout)
        with open(os.path.join(self.folder, "fake/marks"), encoding="utf-8") as file:
            self.assertEqual(file.read(), f"-dr com.apple.quarantine {self.tree}\n")

    def test_what_can_not_run_it_is_told_why(self):
        for mac, word in (({"system": "Linux"}, "not macOS"), ({"machine": "x86_64"}, "Apple silicon"), ({"version": "14.7.1"}, "macOS 14.7.1"),
                          ({"version": "26.1"}, "macOS 26.1"), ({"user": "501"}, "sudo")):
            done = self.install(**mac)
            self.assertEqual(done.returncode, 1, mac)
            self.assertIn(word, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_newer_systems_are_taken(self):
        for version in ("26.2", "26.10", "27.0", "27"):
            self.assertEqual(self.install(version=version).returncode, 0, version)

    def test_a_damaged_file_is_named(self):
        with open(os.path.join(self.tree, "bin/clusterctl"), "a", encoding="utf-8") as file:
            file.write("# one bit\n")
        done = self.install()
        self.assertEqual(done.returncode, 1)
        self.assertIn("bin/clusterctl", done.stderr)
        self.assertIn("fetch the archive again", done.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 3 or not os.path.isfile(sys.argv[1]):
        sys.exit("usage: archive_test.py ARCHIVE WORK")
    Archive.archive, Archive.work = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    Install.archive = Archive.archive
    unittest.main(argv=sys.argv[:1])
