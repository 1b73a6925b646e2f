// Each construct that bash 3.2 can't run, and what is written instead. Where a bash 3.2 is at hand
// (a Mac's /bin/bash, or the one that MACRAME_BASH32 names) it runs both, and the repository's
// scripts: the list of constructs is held against the real thing.

#include "tests/tidy/shell_scripts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tidy/source_tree.h"

namespace macrame::tests {
namespace {

using ::testing::HasSubstr;

// Under a bash of today both print `output`; under bash 3.2 only `allowed` does.
struct Sample {
  const char* name;
  const char* faulty;
  const char* allowed;
  const char* output;
};

const std::vector<Sample>& Samples() {
  static const std::vector<Sample> samples = {
      {"an empty array", "set -u\na=()\nfor x in \"${a[@]}\"; do :; done\necho v",
       "set -u\na=()\nfor x in ${a[@]+\"${a[@]}\"}; do :; done\necho v", "v"},
      {"arguments that may be none", "set -u\na=(\"$@\")\nprintf '%s' \"${a[*]}\"\necho v",
       "set -u\na=(\"$@\")\nprintf '%s' \"${a[*]-}\"\necho v", "v"},
      {"words of a command that may be none", "set -u\na=($(true))\necho \"${a[@]}\"v",
       "set -u\na=($(true) v)\necho \"${a[@]}\"", "v"},
      {"an empty array with a redirection", "set -u\na=( )\necho v >&1 \"${a[@]}\"",
       "set -u\na=(1)\necho v >&1 ${a[@]:+}", "v"},
      {"declare -A", "declare -A m\nm[k]=v\nm[j]=w\necho \"${m[k]}\"",
       "case k in k) echo v ;; j) echo w ;; esac", "v"},
      {"local -A", "f() { local -A m; m[k]=v; m[j]=w; echo \"${m[k]}\"; }\nf",
       "f() { local -a m; m[0]=v; m[1]=w; echo \"${m[0]}\"; }\nf", "v"},
      {"local -n", "f() { local -n r=$1; r=v; }\nf x\necho \"$x\"",
       "f() { printf -v \"$1\" %s v; }\nf x\necho \"$x\"", "v"},
      {"declare -g", "f() { declare -g x=v; }\nf\necho \"$x\"", "f() { x=v; }\nf\necho \"$x\"",
       "v"},
      {"declare -l", "declare -l x=V\necho \"$x\"",
       "x=$(printf %s V | tr '[:upper:]' '[:lower:]')\necho \"$x\"", "v"},
      {"declare -u", "f() { local -u x=v; echo \"$x\"; }\nf",
       "f() { local x; x=$(printf %s v | tr a-z A-Z); echo \"$x\"; }\nf", "V"},
      {"mapfile", "mapfile -t a <<<v\necho \"${a[0]}\"",
       "while IFS= read -r line; do echo \"$line\"; done <<<v", "v"},
      {"readarray", "if true; then readarray -t a <<<v; fi\necho \"${a[0]}\"",
       "read -r -a a <<<v\necho \"${a[0]}\"", "v"},
      {"coproc", "coproc cat\necho v", "echo v | cat", "v"},
      {"wait -n", "sleep 0 &\nwait -n && echo v", "sleep 0 &\nwait \"$!\" && echo v", "v"},
      {"&>>", "f=$(mktemp)\necho v &>>\"$f\"\ncat \"$f\"\nrm -f \"$f\"",
       "f=$(mktemp)\necho v >>\"$f\" 2>&1\ncat \"$f\"\nrm -f \"$f\"", "v"},
      {"|&", "echo v |& cat", "echo v 2>&1 | cat", "v"},
      {";&", "case a in a) printf '' ;& b) echo v ;; esac", "case a in a|b) echo v ;; esac", "v"},
      {";;&", "case a in a) printf '' ;;& a) echo v ;; esac",
       "case a in a) printf ''; echo v ;; esac", "v"},
      {"{name}>", "exec {out}>&1\necho v >&\"$out\"", "exec 3>&1\necho v >&3", "v"},
      {"[[ -v", "x=\n[[ -v x ]] && echo v", "x=\n[[ -n ${x+set} ]] && echo v", "v"},
      {"test -v", "x=\nif test -v x; then echo v; fi",
       "x=\nif test -n \"${x+set}\"; then echo v; fi", "v"},
      {"a step", "echo {1..5..2}",
       "for ((i = 1; i <= 5; i += 2)); do a=\"${a-}$i \"; done\necho $a", "1 3 5"},
      {"leading zeros", "echo {01..03}", "echo 0{1..3}", "01 02 03"},
      {"read -N", "read -r -N 1 x <<<vw\necho \"$x\"", "read -r -n 1 x <<<vw\necho \"$x\"", "v"},
      {"read -i", "read -r -i w x <<<v\necho \"$x\"", "read -r x <<<v\necho \"$x\"", "v"},
      {"read -t 0.5", "read -r -t 0.5 x <<<v\necho \"$x\"", "read -r -t 1 x <<<v\necho \"$x\"",
       "v"},
      {"globstar", "shopt -s globstar && echo v", "shopt -s nullglob && echo v", "v"},
      {"lastpipe", "shopt -s lastpipe\necho v | read -r x\necho \"$x\"",
       "read -r x < <(echo v)\necho \"$x\"", "v"},
      {"source <(", "source <(echo echo v)", "eval \"$(echo echo v)\"", "v"},
      {"printf %(…)T", "printf '%(v)T\n' 0", "date +v", "v"},
      {"printf -v a[1]", "printf -v 'a[1]' %s v\necho \"${a[1]}\"",
       "a[1]=$(printf %s v)\necho \"${a[1]}\"", "v"},
      {"\\u in printf", "printf '\\u0076\\n'", "printf 'v\\n'", "v"},
      {"\\u in $'…'", "echo $'\\u0076'", "echo $'\\166'", "v"},
      {"${x,,}", "x=V\necho \"${x,,}\"", "x=V\necho \"$x\" | tr A-Z a-z", "v"},
      {"${x^}", "x=v\necho \"a${x^}\"", "x=v\nprintf a\necho \"$x\" | tr a-z A-Z", "aV"},
      {"${x@U}", "x=v\necho \"${x@U}\"", "x=v\necho \"$x\" | tr a-z A-Z", "V"},
      {"a[-1]", "a=(u v)\necho \"${a[-1]}\"", "a=(u v)\necho \"${a[${#a[@]}-1]}\"", "v"},
      {"a[-1]=", "a=(u)\na[-1]=v\necho \"${a[0]}\"", "a=(u)\na[${#a[@]}-1]=v\necho \"${a[0]}\"",
       "v"},
      {"${x:0:-1}", "x=vw\necho \"${x:0:-1}\"", "x=vw\necho \"${x%?}${x: -1:0}\"", "v"},
      {"quotes in a replacement", "x=5\necho \"${x/5/\"v\"}\"", "x=5\ny=v\necho \"${x/5/$y}\"",
       "v"},
      {"BASHPID", "[ -n \"$BASHPID\" ] && echo v", "[ -n \"$$\" ] && echo v", "v"},
      {"EPOCHSECONDS", "[ -n \"${EPOCHSECONDS}\" ] && echo v", "[ -n \"$(date +%s)\" ] && echo v",
       "v"},
      {"a case in $(…)", "x=$(case a in a) echo v ;; esac)\necho \"$x\"",
       "x=$(case a in (a) echo v ;; esac)\necho \"$x\"", "v"},
      {"a case in \"$(…)\"", "echo \"$(case a in a) echo v ;; esac)\"",
       "f() { case a in a) echo v ;; esac; }\necho \"$(f)\"", "v"},
      {"a case in <(…)", "cat <(case a in a) echo v ;; esac)",
       "cat <(case a in (a) echo v ;; esac)", "v"},
      {"an apostrophe in $(cat <<X", "x=$(cat <<'X'\nit's\nX\n)\necho \"${x%\\'s}\"",
       "f() {\ncat <<'X'\nit's\nX\n}\nx=$(f)\necho \"${x%\\'s}\"", "it"},
      {"a parenthesis in <(cat <<X", "cat < <(cat <<X\nv)\nX\n)", "cat <<X\nv)\nX", "v)"},
  };
  return samples;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

struct Ran {
  int exit_code = -1;
  std::string output;  // standard error too
};

Ran RunCommand(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1 </dev/null").c_str(), "r");
  Ran ran;
  if (pipe == nullptr) return ran;
  std::array<char, 4096> part;
  while (fgets(part.data(), part.size(), pipe) != nullptr) ran.output += part.data();
  const int status = pclose(pipe);
  if (WIFEXITED(status)) ran.exit_code = WEXITSTATUS(status);
  return ran;
}

Ran RunScript(const std::string& bash, const std::string& text) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("macrame-sample-" + std::to_string(getpid()));
  std::ofstream(path) << text << "\n";
  Ran ran = RunCommand("'" + bash + "' '" + path.string() + "'");
  std::filesystem::remove(path);
  return ran;
}

std::string VersionOf(const std::string& bash) {
  if (bash.empty()) return "";
  return RunCommand("'" + bash + "' -c 'echo ${BASH_VERSINFO[0]}.${BASH_VERSINFO[1]}'").output;
}

// Empty: this machine has none.
std::string Bash32() {
  const char* variable = getenv("MACRAME_BASH32");
  const std::string named = variable == nullptr ? "" : variable;
  const std::string bash = named.empty() ? "/bin/bash" : named;
  const bool is_it = VersionOf(bash) == "3.2\n";
  EXPECT_TRUE(named.empty() || is_it) << "MACRAME_BASH32 names " << bash << ", no bash 3.2";
  return is_it ? bash : "";
}

constexpr char kNone[] = "no bash 3.2 here; MACRAME_BASH32 names one";

std::vector<SourceFile> ShellScripts() {
  std::vector<SourceFile> scripts;
  for (const SourceFile& file : ReadSourceTree()) {
    if (IsShellScript(file)) scripts.push_back(file);
  }
  return scripts;
}

std::string Told(const std::vector<ShellFault>& faults) {
  std::string told;
  for (const ShellFault& fault : faults) {
    told += "line " + std::to_string(fault.index + 1) + ": " + fault.what + "; write " +
            fault.instead + "\n";
  }
  return told;
}

TEST(ShellScripts, EachConstructIsFoundAndWhatIsWrittenInsteadIsNot) {
  for (const Sample& sample : Samples()) {
    const std::vector<ShellFault> faults = FaultsUnderBash32(LinesOf(sample.faulty));
    EXPECT_EQ(faults.size(), 1u) << sample.name << ":\n" << sample.faulty << "\n" << Told(faults);
    for (const ShellFault& fault : faults) {
      EXPECT_FALSE(fault.what.empty() || fault.instead.empty()) << sample.name;
    }
    EXPECT_EQ(Told(FaultsUnderBash32(LinesOf(sample.allowed))), "") << sample.allowed;
  }
}

TEST(ShellScripts, SamplesPrintWhatTheyShouldUnderABashOfToday) {
  const std::string version = VersionOf("bash");
  if (version < "5.1" || version.size() != 4) GTEST_SKIP() << "no bash 5.1 or later: " << version;
  for (const Sample& sample : Samples()) {
    for (const char* text : {sample.faulty, sample.allowed}) {
      const Ran ran = RunScript("bash", text);
      EXPECT_EQ(ran.output, std::string(sample.output) + "\n") << sample.name << ":\n" << text;
      EXPECT_EQ(ran.exit_code, 0) << sample.name << ":\n" << text;
    }
  }
}

TEST(ShellScripts, Bash32RunsWhatIsAllowedAndNothingElse) {
  const std::string bash = Bash32();
  if (bash.empty()) GTEST_SKIP() << kNone;
  for (const Sample& sample : Samples()) {
    const Ran faulty = RunScript(bash, sample.faulty);
    EXPECT_TRUE(faulty.exit_code != 0 || faulty.output != std::string(sample.output) + "\n")
        << sample.name << ": bash 3.2 runs it, so it is no fault:\n"
        << sample.faulty;
    const Ran allowed = RunScript(bash, sample.allowed);
    EXPECT_EQ(allowed.output, std::string(sample.output) + "\n") << sample.name << ":\n"
                                                                 << sample.allowed;
    EXPECT_EQ(allowed.exit_code, 0) << sample.name << ":\n" << sample.allowed;
  }
}

TEST(ShellScripts, Bash32ReadsEveryScriptAndRunsWhatDoesNoHarm) {
  const std::string bash = Bash32();
  if (bash.empty()) GTEST_SKIP() << kNone;
  for (const SourceFile& script : ShellScripts()) {
    const Ran ran = RunCommand("'" + bash + "' -n " + script.path);
    EXPECT_EQ(ran.exit_code, 0) << script.path << "\n" << ran.output;
    EXPECT_EQ(ran.output, "") << script.path;
  }
  EXPECT_THAT(RunCommand("'" + bash + "' deploy/test --list").output, HasSubstr("unit\n"));
  const Ran unknown = RunCommand("'" + bash + "' deploy/test no-such-part");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.output, HasSubstr("no part named 'no-such-part'; there are: unit"));
  const Ran status = RunCommand("'" + bash + "' deploy/demo --status");
  EXPECT_EQ(status.exit_code, 0);
  EXPECT_THAT(status.output, HasSubstr("cleo "));
  EXPECT_EQ(RunCommand("'" + bash + "' deploy/setup --no-such-option").exit_code, 2);
}

TEST(ShellScripts, TextThatIsNoCodeIsNoFault) {
  for (const char* text : {
           "# mapfile, ${x,,} and \"${nothing[@]}\" in a comment",
           "echo 'declare -A m; ${x,,}'",
           "echo \"mapfile; wait -n |& x\"",
           "cat <<'X'\nmapfile -t a\n${x,,}\nX",
           "cat <<-X\n\tmapfile\n\tX",
           "echo $(( 1 << 3 )) '|&'",
           "a=(one\n  two)\nprintf '%s\\n' \"${a[@]}\"",
           "a=(--root \"$x\")\n\"${a[@]}\"",
           "case $x in\n  timeout) exit 1 ;;\nesac",
           "[ \"$#\" -eq 1 ] || { echo \"usage: ${0##*/} {NAME}\" >&2; exit 2; }",
           "echo \"${x:-$(printf '%s' ')')}\"",
           "echo \"${name}… {1..3}\"",
       }) {
    EXPECT_EQ(Told(FaultsUnderBash32(LinesOf(text))), "") << text;
  }
}

TEST(ShellScripts, CodeWithinTextIsRead) {
  for (const char* text : {
           "echo \"$(mapfile -t a <<<v)\"",
           "cat <<X\n${x,,}\nX",
           "cat <<'X'\nnothing\nX\necho ${x^^}",
           "x='it\nis' y=${x,,}",
           "local quiet=()\nninja \"${quiet[@]}\" all",
           "a=(1)\na=()\necho ${a[*]}",
           "read -r -a a\necho \"${a[@]}\"",
           "echo $name…",
       }) {
    EXPECT_EQ(FaultsUnderBash32(LinesOf(text)).size(), 1u) << text;
  }
  const auto faults = FaultsUnderBash32(LinesOf("a=()\n\necho \"${a[@]}\""));
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].index, 2u);
  EXPECT_THAT(faults[0].instead, HasSubstr("${a[@]+\"${a[@]}\"}"));
}

TEST(ShellScripts, WhatMacOsLacksIsFound) {
  for (const char* text : {
           "timeout 5 cat",
           "setsid x &",
           "jobs=$(nproc)",
           "sed -i s/a/b/ f",
           "sed -e s/a/b/ -i f",
           "date +%N",
           "x=$(date -d yesterday)",
           "stat -c %s f",
           "grep -oP x f",
           "head -n -1 f",
           "find . -name x -printf %p",
           "mktemp -d --tmpdir x",
           "sleep infinity",
           "ls --color",
           "cat f | sha256sum",
           "ip link show",
           "base64 -w 0 f",
           "if tac f; then :; fi",
       }) {
    EXPECT_EQ(FaultsOnMacOs(LinesOf(text)).size(), 1u) << text;
  }
  for (const char* text : {
           "if command -v setsid >/dev/null; then setsid x & fi",
           "sed -n 's/ -i//p' f",
           "date +%s",
           "grep -qx a f",
           "head -n 1 f",
           "mktemp -d /tmp/x.XXXXXX",
           "sleep 0.1",
           "echo timeout 5",
           "# timeout 5",
           "readlink -f x",
           "sort -V f",
           "x) timeout) y ;;",
       }) {
    EXPECT_EQ(Told(FaultsOnMacOs(LinesOf(text))), "") << text;
  }
}

TEST(ShellScripts, TheRepositorysRunUnderBash32) {
  const std::vector<SourceFile> scripts = ShellScripts();
  EXPECT_GE(scripts.size(), 10u);
  for (const SourceFile& script : scripts) {
    for (const ShellFault& fault : FaultsUnderBash32(script.lines)) {
      ADD_FAILURE() << script.path << ":" << fault.index + 1 << ": " << fault.what
                    << ": a Mac's bash 3.2 can't; write " << fault.instead;
    }
  }
}

TEST(ShellScripts, TheRepositorysAskNothingOfAMacThatItLacks) {
  for (const SourceFile& script : ShellScripts()) {
    // These are for Linux: a bare Debian, and process 1 of a virtual machine.
    if (script.path == "deploy/check-fresh" || script.path == "tests/rdma/guest_init") continue;
    for (const ShellFault& fault : FaultsOnMacOs(script.lines)) {
      ADD_FAILURE() << script.path << ":" << fault.index + 1 << ": " << fault.what << "; write "
                    << fault.instead;
    }
  }
}

}  // namespace
}  // namespace macrame::tests
