"""Writes the ninja file by which tests/macos/compile compiles every source with zig.

    zig_build_file.py ROOT BUILD WORK INCLUDES COMPILER LAUNCHER SOURCES AT_ONCE >build.ninja

INCLUDES are folders of headers with colons between them; the first has the generated code.

What BUILD compiles together, as a Mac's own build does, is compiled together here too; each source has the
definitions of BUILD's compile_commands.json. It has one precompiled header at the most, of headers that it
includes anyway: so a header that it forgot is still missed, unless a source that is checked with it has it. Paths
below ROOT are written from there, so that a compiler cache serves a second clone. Code is made of what speaks of
instructions (assembly, vectors) alone, since only there making it finds what checking does not; all else is
checked, templates and all, and AT_ONCE units at once (check_together.py): those of different folders, which seldom
have a name in common.
"""

import collections
import json
import os
import re
import sys

# What takes long to read, with the seconds that it takes beside those before it; what common_templates.h has
# clang make of it is counted too.
HEAVY = {
    "absl/strings/str_cat.h": 0.2, "absl/status/statusor.h": 0.4, "macrame/v1/common.pb.h": 0.4,
    "macrame/v1/node.pb.h": 0.1, "macrame/v1/plan.pb.h": 0.1, "macrame/v1/rank.pb.h": 0.2,
    "macrame/v1/agent.pb.h": 0.1, "macrame/v1/cluster.pb.h": 0.2, "macrame/v1/access.pb.h": 0.1,
    "macrame/v1/operation.pb.h": 0.1, "absl/container/flat_hash_map.h": 0.4, "mlx/mlx.h": 0.9,
    "gtest/gtest.h": 1.0, "gmock/gmock.h": 0.4, "nlohmann/json.hpp": 3.0, "spdlog/spdlog.h": 1.2, "CLI/CLI.hpp": 1.0,
}
# What a precompiled header costs beside the reading.
PRECOMPILE_S = 1.0
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^">]+)[">]', re.MULTILINE)
# Of targets without spdlog too: what is defined must be the same as in the precompiled header. Clang finds
# fmt 10's compile-time check of spdlog's own format strings no constant expression (Debian 13); GCC checks
# ours.
ALWAYS = ["-DSPDLOG_FMT_EXTERNAL", "-DSPDLOG_COMPILED_LIB", "-DSPDLOG_SHARED_LIB", "-DFMT_SHARED",
          "-DFMT_CONSTEVAL=", "-DGTEST_HAS_PTHREAD=1"]
# float.h first: zig's libc++ guards it as a whole, so a math.h that asks for a part of it would hide the
# rest; then that part, INFINITY and NAN, which MLX's headers need.
FLOAT = "-include float.h -include __float_infinity_nan.h"


# What puts instructions into a source: the vectors' headers.
VECTORS = {"hwy/highway.h", "arm_neon.h"}
ASSEMBLY = re.compile(r"\basm\b")


def has_assembly(path):
    with open(path, errors="replace") as file:
        return ASSEMBLY.search(file.read()) is not None


class Includes:
    """All headers that a source includes, however deep, as far as they are ours or generated."""

    def __init__(self, root, generated):
        self.folders = [root, generated]
        self.known = {}

    def of(self, path):
        if path not in self.known:
            self.known[path] = set()  # for those that include each other
            with open(path, errors="replace") as file:
                text = file.read()
            found = set()
            for name in INCLUDE.findall(text):
                found.add(name)
                inner = next((p for p in (os.path.join(f, name) for f in self.folders) if os.path.exists(p)), None)
                if inner:
                    found |= self.of(inner)
            self.known[path] = found
        return self.known[path]


def compiled(build):
    """By real path, the -D options of each source; and the lists of sources that are compiled together."""
    options_of, together = {}, []
    with open(os.path.join(build, "compile_commands.json")) as file:
        for entry in json.load(file):
            path = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
            options = re.findall(r"(?<=\s)-D\S+", entry["command"])
            options_of[path] = options
            if re.fullmatch(r"unity_\w+\.cxx", os.path.basename(path)):
                with open(path) as unity:
                    sources = [os.path.realpath(source) for source in INCLUDE.findall(unity.read())]
                options_of.update((source, options) for source in sources)
                together.append(sources)
    return options_of, together


def write_if_changed(path, text):
    if not os.path.exists(path) or open(path).read() != text:
        with open(path, "w") as file:
            file.write(text)


class Unit:
    """What is compiled at once: a source, or several."""

    def __init__(self, name, options, reached, is_code_made):
        self.name, self.options, self.is_code_made = name, options, is_code_made
        self.heavy = frozenset(header for header in HEAVY if header in reached)


def units_of(root, work, build, names, includes):
    options_of, together = compiled(build)
    wanted = {os.path.realpath(os.path.join(root, name)): name for name in names}
    units = []

    def add(name, paths):
        options = [o.replace("$", "$$") for o in options_of.get(paths[0], []) if o not in ALWAYS]
        reached = set().union(*(includes.of(path) for path in paths))
        units.append(Unit(name, options, reached, bool(VECTORS & reached) or any(map(has_assembly, paths))))

    folder = os.path.join(work, "together")
    os.makedirs(folder, exist_ok=True)
    for group in together:
        paths = [path for path in group if path in wanted]
        if len(paths) > 1:
            text = "".join(f'#include "{wanted[path]}"\n' for path in paths)
            name = os.path.join(folder, wanted[paths[0]].replace("/", "_").removesuffix(".cc") + "_and_others.cc")
            write_if_changed(name, text)
            add(name, paths)
            for path in paths:
                del wanted[path]
    for path, name in wanted.items():
        add(name, [path])
    return units


def seconds_of(heavy):
    return sum(HEAVY[header] for header in heavy)


def best_of(sets, unit):
    return max((heavy for heavy in sets if heavy <= unit.heavy), key=seconds_of, default=frozenset())


def precompiled_sets(units):
    """The sets of headers that are precompiled: those that save more than it takes to make them."""
    sets = {unit.heavy for unit in units}
    for heavy in sorted(sets, key=lambda heavy: (seconds_of(heavy), sorted(heavy))):
        users = [unit for unit in units if best_of(sets, unit) == heavy]
        others = sets - {heavy}
        saved = sum(seconds_of(heavy) - seconds_of(best_of(others, unit)) for unit in users)
        if saved < PRECOMPILE_S + 1.5 * seconds_of(heavy):
            sets = others
    return sets


def bundles_of(units, sets, at_once):
    """Lists of units that are checked at once; what code is made of stays alone."""
    bundles, alike = [], collections.defaultdict(list)
    for unit in units:
        if unit.is_code_made:
            bundles.append([unit])
        else:
            alike[best_of(sets, unit), tuple(unit.options)].append(unit)
    for members in alike.values():
        members.sort(key=lambda unit: unit.name)
        count = -(-len(members) // at_once)
        bundles += [members[first::count] for first in range(count)]
    return bundles


def main(root, build, work, includes, compiler, launcher, sources, at_once):
    def here(path):
        return os.path.relpath(path, root) if path.startswith(root + "/") else path

    folders = includes.split(":")
    flags = "-std=c++20 -O0 -g0 -fno-sanitize=all -Wall -Wextra -Werror -I. "
    flags += " ".join(f"-isystem {here(folder)}" for folder in folders)
    own = os.path.dirname(os.path.abspath(__file__))
    sums, together = (here(os.path.join(own, name)) for name in ("header_sum.py", "check_together.py"))
    print(f"""builddir = {here(work)}
rule compile
  command = {launcher} {compiler} {flags} $start $defines -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
  description = aarch64-macos $in
rule check
  command = python3 {together} $out $in -- {compiler} {flags} $start $defines -fsyntax-only
  depfile = $out.d
  deps = gcc
  description = aarch64-macos $in
rule precompile
  command = {compiler} {flags} {FLOAT} $defines -fpch-instantiate-templates -MD -MF $out.d -x c++-header $in -o $out && python3 {sums} $out.d >$out.sum
  depfile = $out.d
  deps = gcc
  description = aarch64-macos $in
""")
    always = " ".join(ALWAYS)
    folder = os.path.join(work, "precompiled")
    os.makedirs(folder, exist_ok=True)
    with open(sources) as file:
        units = units_of(root, work, build, file.read().splitlines(), Includes(root, folders[0]))
    sets, used = precompiled_sets(units), {}
    objects = []
    for bundle in bundles_of(units, sets, int(at_once)):
        best, names = best_of(sets, bundle[0]), [here(unit.name) for unit in bundle]
        header = used.setdefault(best, f"{here(folder)}/set{len(used)}.h") if best else None
        of = os.path.basename(names[0]) if names[0].startswith(here(work)) else names[0].replace("/", "_")
        output = f"{here(work)}/objects/{of}.o"
        objects.append(output)
        rule = "compile" if bundle[0].is_code_made else "check"
        print(f"build {output}: {rule} {' '.join(names)}" + (f" | {header}.pch" if header else ""))
        print(f"  start = {f'-include-pch {header}.pch' if header else FLOAT}")
        print(f"  defines = {' '.join([always, *bundle[0].options])}")
    for heavy, header in used.items():
        text = "".join(f"#include <{h}>\n" for h in HEAVY if h in heavy)
        write_if_changed(os.path.join(root, header), text + '#include "tests/macos/common_templates.h"\n')
        print(f"build {header}.pch: precompile {header}\n  defines = {always}")
    print(f"build all: phony {' '.join(objects)}\ndefault all")


if __name__ == "__main__":
    main(*sys.argv[1:])
