#include "tests/tidy/shell_scripts.h"

#include <algorithm>
#include <map>
#include <regex>
#include <span>

#include "tests/tidy/shell_text.h"

namespace macrame::tests {
namespace {

struct Rule {
  std::string ShellLine::*view;
  std::string pattern;
  const char* what;
  const char* instead;
};

// Where a command's name may stand.
constexpr char kCommand[] =
    R"((?:^|[;&|({!]|\b(?:then|do|else|if|elif|while|until|exec|env|sudo|xargs)\s)\s*)";

constexpr char kUpper[] = "printf %s \"$x\" | tr '[:lower:]' '[:upper:]', or the other way round";
constexpr char kLoop[] = "for ((i = 1; i <= 9; i += 2)), or printf '%02d '";

std::vector<Rule> RulesOfBash32() {
  const std::string command = kCommand;
  const std::string declares =
      command + R"((?:declare|typeset|local|readonly|export)\s+(?:-\w+\s+)*-\w*)";
  return {
      {&ShellLine::code, declares + R"(A)", "an array by names (-A)",
       "a case, or lines of two columns that a loop reads"},
      {&ShellLine::code, declares + R"(n\w*\s+\w+=)", "a name for another variable (-n)",
       "printf -v \"$name\" %s \"$value\", and ${!name} to read it"},
      {&ShellLine::code, declares + R"(g)", "declare -g", "a plain assignment"},
      {&ShellLine::code, declares + R"([lu])", "declare -l or -u", kUpper},
      {&ShellLine::code, command + R"((?:mapfile|readarray)(?:\s|$))", "mapfile or readarray",
       "while IFS= read -r line; do lines+=(\"$line\"); done"},
      {&ShellLine::code, command + R"(coproc(?:\s|$))", "coproc", "a pipe, or mkfifo"},
      {&ShellLine::code, command + R"(wait\s+-\w)", "wait with an option", "wait \"$pid\""},
      {&ShellLine::code, R"(&>>)", "&>>", ">>FILE 2>&1"},
      {&ShellLine::code, R"(\|&)", "|&", "2>&1 |"},
      {&ShellLine::code, R"(;&|;;&)", ";& or ;;&", "the commands again, or a pattern a|b"},
      {&ShellLine::code, R"((?:^|\s)\{\w*[A-Za-z_]\w*\}[<>])", "{name}> or {name}<",
       "a number: exec 3>FILE"},
      {&ShellLine::code, R"((?:\[|\btest|&&|\|\||!|-[ao])\s+-[vR]\s)", "-v or -R in a test",
       "[ -n \"${name+set}\" ]"},
      {&ShellLine::code, R"(\{-?\w+\.\.-?\w+\.\.-?\w+\})", "{a..b..step}", kLoop},
      {&ShellLine::code, R"(\{-?(?:0\d+\.\.-?\d+|\d+\.\.-?0\d+)\})", "{01..09}", kLoop},
      {&ShellLine::code, command + R"((?:IFS=\S*\s+)?read\s+(?:-\w+\s+)*-\w*[Ni])", "read -N or -i",
       "read -n, in a loop when it must be all"},
      {&ShellLine::code, R"(\bread\s[^;&|]*-t\s*\d*\.\d)", "read -t with a fraction",
       "whole seconds"},
      {&ShellLine::code,
       R"(\bshopt\s+-\w+\s+(?:globstar|lastpipe|inherit_errexit|autocd|dirspell|checkjobs|)"
       R"(direxpand|complete_fullquote|globasciiranges|localvar_\w+|assoc_expand_once|)"
       R"(patsub_replacement|globskipdots|varredir_close|compat\w+))",
       "a shopt that came later", "find for **, a loop fed by <(…) for lastpipe"},
      {&ShellLine::code, command + R"((?:source|\.)\s+<\()", "source <(…), which reads nothing",
       "eval \"$(…)\""},
      {&ShellLine::text, R"re(\bprintf\s+["'][^"']*%-?\d*\([^)"']*\)T)re", "printf %(…)T",
       "date +FORMAT"},
      {&ShellLine::text, R"(\bprintf\s+-v\s*["']?\w+\[)", "printf -v into an array's element",
       "name[i]=$(printf …)"},
      {&ShellLine::text, R"(\\[uU][0-9A-Fa-f]{2})", "\\u", "the character itself, in UTF-8"},
      {&ShellLine::expanded, R"(\$\{!?\w+(?:\[[^\]]*\])?(?:,|\^))", "${x,,} or ${x^^}", kUpper},
      {&ShellLine::expanded, R"(\$\{\w+(?:\[[@*]\])?@[A-Za-z]\})", "${x@Q} and the like",
       "printf '%q' \"$x\", or tr"},
      {&ShellLine::expanded, R"(\b\w+\[-\d+\])", "an array's index from its end",
       "${a[${#a[@]}-1]}"},
      {&ShellLine::expanded, R"(\$\{\w+:[^:{}]+:\s*-\d)", "${x:0:-1}, a negative length", "${x%?}"},
      {&ShellLine::expanded, R"(\$\{\w+//?[^}"]*"[^}]*\})",
       "quotes in ${x/pattern/\"text\"}, which become part of the text",
       "a variable for the text, without quotes"},
      {&ShellLine::expanded,
       R"(\$\{?(?:BASHPID|EPOCHSECONDS|EPOCHREALTIME|SRANDOM|BASH_ARGV0|READLINE_ARGUMENT)\b)",
       "a variable that came later", "$$, or date +%s"},
      {&ShellLine::expanded, R"(\$[A-Za-z_]\w*[^ -~\t])",
       "a character beyond ASCII right after $name, which macOS takes for a part of the name",
       "${name}"},
  };
}

struct Program {
  const char* name;
  const char* pattern;  // after the name
  const char* instead;
};

std::span<const Program> ProgramsThatMacOsLacks() {
  static const Program programs[] = {
      {"timeout", R"(\s+-?\w)", "a loop that counts, or Python's subprocess"},
      {"setsid", R"(\s)", "nohup, where `command -v setsid` finds none"},
      {"nproc", R"((?:\s|\)|$))", "getconf _NPROCESSORS_ONLN"},
      {"tac", R"((?:\s|$))", "tail -r there, or awk"},
      {"(?:md5|sha1|sha256)sum", R"((?:\s|$))", "cmp, or shasum -a 256"},
      {"ip", R"(\s+(?:-\w+\s+)*(?:addr|link|route|netns)\b)", "ifconfig, netstat -rn"},
      {"sed", R"(\s[^|;]*(?:-i\b|--in-place))", "sed … FILE >NEW, then mv: its -i takes a suffix"},
      {"date", R"(\s(?:[^|;)]*\s)?(?:-d\b|--date|\S*%[0-9]*N))", "date +%s, or Python's datetime"},
      {"stat", R"(\s+(?:-c|--format|--printf)\b)", "wc -c, or find -newer: its format is -f"},
      {"grep", R"(\s+-\w*P)", "grep -E"},
      {"find", R"(\s[^|;]*-printf\b)", "find … -exec"},
      {"head", R"(\s+-(?:n\s*-|c\s*-)\d)", "sed '$d'"},
      {"mktemp", R"(\s[^|;)]*(?:--tmpdir|--suffix))", "mktemp -d, and a name in it"},
      {"xargs", R"(\s+-\w*d)", "tr '\\n' '\\0' | xargs -0"},
      {"base64", R"(\s+-w)", "base64 | tr -d '\\n'"},
      {"cp", R"(\s+(?:-\w+\s+)*--\w)", "one-letter options"},
      {"ls", R"(\s+(?:-\w+\s+)*--\w)", "one-letter options"},
      {"sort", R"(\s+(?:-\w+\s+)*--(?:parallel|sort))", "one-letter options"},
      {"sleep", R"(\s+(?:infinity|\d+[smhd]))", "a number of seconds"},
      {"tail", R"(\s[^|;]*--pid)", "a loop over kill -0"},
  };
  return programs;
}

// Past the parenthesis that closes the one at `at`.
size_t PastParenthesis(const std::string& text, size_t at) {
  int open = 0;
  for (; at < text.size(); ++at) {
    if (text[at] == '(') ++open;
    if (text[at] == ')' && --open == 0) return at + 1;
  }
  return at;
}

// Does an array's `=(` certainly hold a word? `at` is behind it; `text` goes on to the script's
// end.
bool HoldsAWord(const std::string& text, size_t at) {
  while (true) {
    at = text.find_first_not_of(" \t\n\\", at);
    if (at == std::string::npos || text[at] == ')') return false;
    if (text.compare(at, 2, "$(") == 0) {
      at = PastParenthesis(text, at + 1);
      continue;
    }
    const size_t end = text.find_first_of(" \t\n)", at);
    const std::string word = text.substr(at, end - at);
    const bool all_of_a_list = word.find("@]") != std::string::npos || word.rfind("\"$@", 0) == 0 ||
                               word.rfind("\"${@", 0) == 0;
    const bool unquoted = word[0] == '$' || word[0] == '`';
    if (!all_of_a_list && !unquoted) return true;
    at = end;
  }
}

// The arrays that never lack a word: every assignment that begins one anew has some.
std::map<std::string, bool> ArraysNeverEmpty(const std::string& text) {
  static const std::regex assigns(R"((?:^|[\s;(])(\w+)=\()");
  std::map<std::string, bool> never_empty;
  for (std::sregex_iterator found(text.begin(), text.end(), assigns), end; found != end; ++found) {
    const size_t inside = static_cast<size_t>(found->position() + found->length());
    const bool holds = HoldsAWord(text, inside);
    const auto [place, fresh] = never_empty.emplace((*found)[1].str(), holds);
    if (!fresh) place->second = place->second && holds;
  }
  for (const char* name : {"BASH_SOURCE", "BASH_LINENO", "FUNCNAME", "PIPESTATUS", "BASH_VERSINFO",
                           "BASH_REMATCH", "DIRSTACK"}) {
    never_empty[name] = true;
  }
  return never_empty;
}

void AddEmptyArrays(const std::vector<ShellLine>& lines, std::vector<ShellFault>* faults) {
  static const std::regex plain(R"(\$\{(\w+)\[[@*]\]\})");
  static const std::regex guarded(R"(\$\{\w+\[[@*]\]:?\+"?$)");
  std::string text;
  for (const ShellLine& line : lines) text += line.text + "\n";
  const std::map<std::string, bool> never_empty = ArraysNeverEmpty(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i].expanded;
    for (std::sregex_iterator found(line.begin(), line.end(), plain), end; found != end; ++found) {
      const std::string name = (*found)[1].str();
      const auto known = never_empty.find(name);
      if (known != never_empty.end() && known->second) continue;
      if (std::regex_search(line.substr(0, static_cast<size_t>(found->position())), guarded)) {
        continue;
      }
      faults->push_back(
          {i, found->str() + ", unbound under set -u when it is empty",
           "${" + name + "[@]+\"${" + name + "[@]}\"}, or ${" + name + "[*]-} within text"});
    }
  }
}

}  // namespace

bool IsShellScript(const SourceFile& file) {
  static const std::regex shell(R"(^#!.*[/ ](?:ba)?sh(?:\s|$))");
  return !file.lines.empty() && std::regex_search(file.lines[0], shell);
}

std::vector<ShellFault> FaultsUnderBash32(const std::vector<std::string>& lines) {
  static const std::vector<Rule> rules = RulesOfBash32();
  static const std::vector<std::regex> patterns = [] {
    std::vector<std::regex> compiled;
    for (const Rule& rule : rules) compiled.emplace_back(rule.pattern);
    return compiled;
  }();
  const std::vector<ShellLine> read = ReadShellLines(lines);
  std::vector<ShellFault> faults;
  for (size_t i = 0; i < read.size(); ++i) {
    for (size_t k = 0; k < rules.size(); ++k) {
      if (std::regex_search(read[i].*rules[k].view, patterns[k])) {
        faults.push_back({i, rules[k].what, rules[k].instead});
      }
    }
    if (read[i].case_pattern_in_substitution) {
      faults.push_back({i, "a case's pattern within $(…), whose ) ends the $(", "(pattern)"});
    }
    if (read[i].signs_in_substituted_document) {
      faults.push_back({i, "quotes or parentheses in a here-document within $(…)",
                        "a function that prints the document, called in $(…)"});
    }
  }
  AddEmptyArrays(read, &faults);
  return faults;
}

std::vector<ShellFault> FaultsOnMacOs(const std::vector<std::string>& lines) {
  struct Search {
    const Program& program;
    std::regex used, looked_for;
  };
  static const std::vector<Search> searches = [] {
    std::vector<Search> compiled;
    for (const Program& program : ProgramsThatMacOsLacks()) {
      const std::string name = program.name;
      compiled.push_back({program, std::regex(kCommand + name + program.pattern),
                          std::regex(R"(\bcommand\s+-v\s+)" + name + R"(\b)")});
    }
    return compiled;
  }();
  const std::vector<ShellLine> read = ReadShellLines(lines);
  std::vector<ShellFault> faults;
  for (const Search& search : searches) {
    if (std::any_of(read.begin(), read.end(), [&](const ShellLine& line) {
          return std::regex_search(line.code, search.looked_for);
        })) {
      continue;
    }
    for (size_t i = 0; i < read.size(); ++i) {
      if (!std::regex_search(read[i].code, search.used)) continue;
      faults.push_back(
          {i, std::string("options or a program that macOS lacks: ") + search.program.name,
           search.program.instead});
    }
  }
  return faults;
}

}  // namespace macrame::tests
