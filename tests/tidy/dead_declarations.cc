#include "tests/tidy/dead_declarations.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <regex>
#include <set>

#include "tests/tidy/cpp_outline.h"

namespace macrame::tests {
namespace {

struct Declared {
  DeadDeclaration where;
  bool is_accessor = false;
};

// Hooks of coroutines and of absl::Hash.
bool IsAskedForByName(const std::string& name) {
  static const std::set<std::string> names = {
      "AbslHashValue",   "await_ready",   "await_resume", "await_suspend", "get_return_object",
      "initial_suspend", "final_suspend", "return_value", "return_void",   "unhandled_exception"};
  return names.contains(name);
}

// A macro behind a declarator reads as a function.
bool IsMacro(const std::string& name) {
  for (const char c : name) {
    if (std::islower(static_cast<unsigned char>(c)) != 0) return false;
  }
  return true;
}

// Words of preprocessor lines, which have no tokens: what a macro's body uses.
void AddDirectives(const SourceFile& file, std::set<std::string>* used) {
  bool goes_on = false;
  for (std::string line : file.lines) {
    if (!goes_on && !line.starts_with('#')) continue;
    goes_on = line.ends_with('\\');
    std::replace(line.begin(), line.end(), '#', ' ');
    for (const CppToken& token : CppTokens({file.path, {line}})) used->insert(token.text);
  }
}

class Search {
 public:
  void Read(const SourceFile& file) {
    const CppOutline outline = OutlineOf(file);
    std::set<size_t> declares;
    for (const CppDeclaration& one : outline.declared) {
      declares.insert(one.words.begin(), one.words.end());
      if (file.path.ends_with(".h") && !one.is_override) Note(file, outline, one);
    }
    for (size_t at = 0; at < outline.tokens.size(); ++at) {
      if (!declares.contains(at)) used_.insert(outline.tokens[at].text);
    }
    AddDirectives(file, &used_);
  }

  void ReadTest(const SourceFile& file) {
    for (const CppToken& token : CppTokens(file)) looked_at_.insert(token.text);
  }

  std::vector<DeadDeclaration> Dead() const {
    std::vector<DeadDeclaration> dead;
    for (const auto& [name, declared] : declared_) {
      const bool is_looked_at = declared.is_accessor && looked_at_.contains(name);
      if (!used_.contains(name) && !is_looked_at) dead.push_back(declared.where);
    }
    return dead;
  }

 private:
  void Note(const SourceFile& file, const CppOutline& outline, const CppDeclaration& one) {
    if (IsAskedForByName(one.name) || IsMacro(one.name)) return;
    const size_t line = outline.tokens[one.words.back()].line;
    declared_[one.name] = {{one.name, file.path, line}, one.is_accessor};
  }

  std::map<std::string, Declared> declared_;  // by name
  std::set<std::string> used_, looked_at_;
};

}  // namespace

std::vector<DeadDeclaration> DeadDeclarations(const std::vector<SourceFile>& product,
                                              const std::vector<SourceFile>& tests) {
  Search search;
  for (const SourceFile& file : product) search.Read(file);
  for (const SourceFile& file : tests) search.ReadTest(file);
  return search.Dead();
}

std::vector<DeadDeclaration> DeadFields(const std::vector<SourceFile>& protos,
                                        const std::vector<SourceFile>& product) {
  static const std::regex field(R"(^\s*(?:repeated |optional )?(?:map<[^>]*>|[\w.]+) (\w+) = \d)");
  std::set<std::string> words;
  for (const SourceFile& file : product) {
    for (const CppToken& token : CppTokens(file)) words.insert(token.text);
  }
  const auto is_used = [&](const std::string& name) {
    for (const char* prefix : {"", "set_", "mutable_", "add_", "has_", "clear_"}) {
      if (words.contains(prefix + name)) return true;
    }
    return words.contains(name + "_size");
  };
  std::vector<DeadDeclaration> dead;
  for (const SourceFile& file : protos) {
    for (size_t line = 0; line < file.lines.size(); ++line) {
      std::smatch match;
      if (!std::regex_search(file.lines[line], match, field) || is_used(match[1])) continue;
      dead.push_back({match[1], file.path, line});
    }
  }
  return dead;
}

}  // namespace macrame::tests
