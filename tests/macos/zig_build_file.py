"""Writes the ninja file by which tests/macos/compile compiles every source with zig.

    zig_build_file.py ROOT BUILD WORK INCLUDE MLX_INCLUDE COMPILER LAUNCHER SOURCES >build.ninja

Each source is given the definitions that it has in BUILD's compile_commands.json, and one precompiled
header at the most, of headers that it includes anyway: so a header that it forgot is still missed.
Paths below ROOT are written from there, so that a compiler cache serves a second clone.
"""

import json
import os
import re
import sys

# (name, headers): what takes longest to read. A source has the first of these that it includes whole.
PRECOMPILED = [
    ("cluster", ["macrame/v1/agent.pb.h", "macrame/v1/cluster.pb.h"]),
    ("agent_test", ["macrame/v1/agent.pb.h", "gtest/gtest.h"]),
    ("agent", ["macrame/v1/agent.pb.h"]),
    ("rank_test", ["macrame/v1/rank.pb.h", "gtest/gtest.h"]),
    ("rank", ["macrame/v1/rank.pb.h"]),
    ("plan_test", ["macrame/v1/plan.pb.h", "gtest/gtest.h"]),
    ("plan", ["macrame/v1/plan.pb.h"]),
    ("node_test", ["macrame/v1/node.pb.h", "gtest/gtest.h"]),
    ("node", ["macrame/v1/node.pb.h"]),
    ("mlx", ["mlx/mlx.h"]),
    ("status_test", ["absl/status/statusor.h", "gtest/gtest.h"]),
    ("gtest", ["gtest/gtest.h"]),
    ("status", ["absl/status/statusor.h"]),
    ("strings", ["absl/strings/str_cat.h"]),
]
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^">]+)[">]', re.MULTILINE)
# Of targets without spdlog too: what is defined must be the same as in the precompiled header.
ALWAYS = ["-DSPDLOG_FMT_EXTERNAL", "-DSPDLOG_COMPILED_LIB", "-DSPDLOG_SHARED_LIB", "-DFMT_SHARED",
          "-DGTEST_HAS_PTHREAD=1"]
# float.h first: zig's libc++ guards it as a whole, so a math.h that asks for a part of it would hide the
# rest; then that part, INFINITY and NAN, which MLX's headers need.
FLOAT = "-include float.h -include __float_infinity_nan.h"


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


def definitions(build):
    """By real path: the -D options of each source, also of one that is compiled together with others."""
    found = {}
    with open(os.path.join(build, "compile_commands.json")) as file:
        for entry in json.load(file):
            path = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
            options = re.findall(r"(?<=\s)-D\S+", entry["command"])
            found[path] = options
            if re.fullmatch(r"unity_\w+\.cxx", os.path.basename(path)):
                with open(path) as together:
                    found.update((os.path.realpath(source), options) for source in INCLUDE.findall(together.read()))
    return found


def main(root, build, work, include, mlx_include, compiler, launcher, sources):
    def here(path):
        return os.path.relpath(path, root) if path.startswith(root + "/") else path

    generated = os.path.join(build, "proto/gen")
    flags = (f"-target aarch64-macos.14.0 -std=c++20 -O0 -g0 -fno-sanitize=all -Wall -Wextra -Werror -I. "
             f"-isystem {here(include)} -isystem {here(generated)} -isystem {here(mlx_include)}")
    zig = f"ZIG_GLOBAL_CACHE_DIR={work}/zig-cache"
    sums = here(os.path.join(os.path.dirname(os.path.abspath(__file__)), "header_sum.py"))
    print(f"""builddir = {here(work)}
rule compile
  command = {zig} {launcher} {compiler} {flags} $start $defines -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
  description = aarch64-macos $in
rule precompile
  command = {zig} {compiler} {flags} {FLOAT} $defines -MD -MF $out.d -x c++-header $in -o $out && python3 {sums} $out.d >$out.sum
  depfile = $out.d
  deps = gcc
  description = aarch64-macos $in
""")
    always = " ".join(ALWAYS)
    folder = os.path.join(work, "precompiled")
    os.makedirs(folder, exist_ok=True)
    for name, headers in PRECOMPILED:
        text = "".join(f"#include <{header}>\n" for header in headers)
        path = os.path.join(folder, name + ".h")
        if not os.path.exists(path) or open(path).read() != text:
            with open(path, "w") as file:
                file.write(text)
        print(f"build {here(path)}.pch: precompile {here(path)}\n  defines = {always}")
    given, includes, objects = definitions(build), Includes(root, generated), []
    with open(sources) as file:
        names = file.read().splitlines()
    for source in names:
        path = os.path.realpath(os.path.join(root, source))
        own = [d.replace("$", "$$") for d in given.get(path, []) if d not in ALWAYS]
        reached = includes.of(os.path.join(root, source))
        chosen = next((name for name, headers in PRECOMPILED if reached.issuperset(headers)), None)
        output = f"{here(work)}/objects/{source.replace('/', '_')}.o"
        objects.append(output)
        header = f"{here(folder)}/{chosen}.h.pch"
        print(f"build {output}: compile {source}" + (f" | {header}" if chosen else ""))
        print(f"  start = {f'-include-pch {header}' if chosen else FLOAT}")
        print(f"  defines = {' '.join([always, *own])}")
    print(f"build all: phony {' '.join(objects)}\ndefault all")


if __name__ == "__main__":
    main(*sys.argv[1:])
