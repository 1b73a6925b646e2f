#include "tests/tidy/cpp_outline.h"

#include <algorithm>
#include <set>
#include <utility>

namespace macrame::tests {
namespace {

class Reader {
 public:
  explicit Reader(const SourceFile& file) : tokens_(CppTokens(file)) {}

  CppOutline Read() {
    while (at_ < tokens_.size()) ReadScope();
    outline_.tokens = std::move(tokens_);
    return std::move(outline_);
  }

 private:
  const std::string& Text(size_t at) const {
    static const std::string none;
    return at < tokens_.size() ? tokens_[at].text : none;
  }
  bool Is(const char* text) const { return Text(at_) == text; }
  const std::string& Before() const { return Text(at_ - 1); }

  // Statements up to the brace that closes a namespace or a class, and this brace.
  void ReadScope() {
    while (at_ < tokens_.size()) {
      if (Is("}")) {
        ++at_;
        return;
      }
      ReadStatement();
    }
  }

  // A declaration up to its ';', or up to the end of its body.
  void ReadStatement() {
    const size_t begin = at_;
    SkipTemplates();
    if (Is("namespace") || (Is("inline") && Text(at_ + 1) == "namespace") ||
        (Is("extern") && Text(at_ + 2) == "{")) {
      ReadNamespace();
    } else if (const size_t brace = TypeBrace(); brace != 0) {
      ReadType(brace);
    } else {
      ReadDeclaration(begin);
    }
  }

  void ReadNamespace() {
    while (at_ < tokens_.size() && !Is("{") && !Is(";")) ++at_;
    const bool opens = Is("{");
    ++at_;
    if (opens) ReadScope();
  }

  void SkipTemplates() {
    while (Is("template") && Text(at_ + 1) == "<") {
      ++at_;
      SkipAngles();
    }
  }

  // Where the braces of a class or enumeration open whose declaration begins here, else 0.
  size_t TypeBrace() const {
    static const std::set<std::string> kinds = {"class", "struct", "union", "enum"};
    size_t at = at_;
    while (Text(at) == "typedef" || Text(at) == "static" || Text(at) == "constexpr" ||
           Text(at) == "const" || Text(at) == "inline") {
      ++at;
    }
    if (!kinds.contains(Text(at))) return 0;
    for (size_t angles = 0; at < tokens_.size(); ++at) {
      const std::string& text = Text(at);
      if (text == "{") return at;
      if (text == "<") ++angles;
      if (text == ">" && angles > 0) --angles;
      if (text == ";" || (text == "=" && angles == 0)) return 0;
      if (text == "(" && angles == 0 && Text(at - 1) != "alignas") return 0;
      if (text == "(") at = Closing(at);
    }
    return 0;
  }

  void ReadType(size_t brace) {
    const bool enumeration = Is("enum");
    DeclareType(brace);
    at_ = brace;
    if (enumeration) return SkipGroup();
    ++at_;
    ReadScope();
  }

  // The name is the last word before the bases and the brace.
  void DeclareType(size_t brace) {
    size_t end = at_;
    while (end < brace && Text(end) != ":" && Text(end) != "final") ++end;
    const bool named = end > at_ + 1 && IsWord(tokens_[end - 1]) && Text(end - 1) != "class";
    if (named) outline_.declared.push_back({Text(end - 1), {end - 1}});
  }

  // The index of what closes the group that opens at `at`.
  size_t Closing(size_t at) const {
    size_t depth = 0;
    for (; at < tokens_.size(); ++at) {
      const std::string& text = tokens_[at].text;
      if (text == "(" || text == "[" || text == "{") ++depth;
      if ((text == ")" || text == "]" || text == "}") && --depth == 0) return at;
    }
    return at;
  }

  // Passes what is in (), [] or {} from here on. Lambdas in it are functions.
  void SkipGroup() {
    const size_t end = Closing(at_);
    for (++at_; at_ < end;) SkipPart();
    at_ = end + 1;
  }

  void SkipPart() {
    if (IsLambda()) {
      ReadLambda();
    } else if (Is("(") || Is("[") || Is("{")) {
      SkipGroup();
    } else {
      ++at_;
    }
  }

  // A '[' that neither subscripts nor begins an attribute.
  bool IsLambda() const {
    if (!Is("[") || Text(at_ + 1) == "[" || Before() == "[") return false;
    const bool behind_value = IsWord(tokens_[at_ - 1]) && Before() != "return";
    return !behind_value && Before() != "]" && Before() != ")" && Before() != "operator";
  }

  void ReadLambda() {
    const size_t begin = at_;
    at_ = Closing(at_) + 1;
    while (at_ < tokens_.size() && !Is("{")) {
      if (Is("(")) {
        SkipGroup();
      } else {
        ++at_;
      }
    }
    TakeBody("lambda", begin);
  }

  // From '<' to what closes it.
  void SkipAngles() {
    size_t depth = 0;
    while (at_ < tokens_.size()) {
      if (Is("<")) ++depth;
      if (Is(">") && --depth == 0) break;
      if (Is("(") || Is("[") || Is("{")) {
        SkipGroup();
      } else {
        ++at_;
      }
    }
    ++at_;
  }

  struct Name {
    std::string text;
    std::vector<size_t> words;  // their tokens
  };

  // Reads a declaration that is neither a type nor a namespace. It defines a function when a
  // brace follows its parameters.
  void ReadDeclaration(size_t begin) {
    Name name, last;  // the function's, and what was read last that may be one
    bool has_parameters = false, initialisers = false, overrides = false;
    const auto declare = [&] { Declare(begin, has_parameters ? name : last, overrides); };
    while (at_ < tokens_.size() && !Is(";") && !Is("}")) {
      if (Is("operator")) {
        AddToName(TakeOperatorName(), &last);
      } else if (Is("=")) {
        declare();
        return SkipInitialiser();
      } else if (Is("{")) {
        if (IsRequirement() || !has_parameters || (initialisers && IsMemberInitialiser())) {
          SkipGroup();
          continue;
        }
        declare();
        TakeBody(name.text, begin);
        NoteAccessor(name);
        return;
      } else if (Is("(")) {
        if (!has_parameters && NamesFunction()) {
          name = last;
          has_parameters = true;
        }
        SkipGroup();
      } else if (Is(":") && IsAccess(begin)) {
        ++at_;
        return;
      } else if (Is("[") || (Is("<") && at_ > begin)) {
        Is("[") ? SkipGroup() : SkipAngles();
      } else {
        initialisers = initialisers || (Is(":") && has_parameters);
        overrides = overrides || Is("override");
        AddWord(&last);
      }
    }
    declare();
    if (Is(";")) ++at_;
  }

  void Declare(size_t begin, const Name& name, bool overrides) {
    static const std::set<std::string> others = {"friend", "static_assert", "using", "typedef"};
    const bool is_alias = Text(begin) == "using" && Is("=");
    if (name.words.empty() || (others.contains(Text(begin)) && !is_alias)) return;
    outline_.declared.push_back({Text(name.words.back()), name.words, overrides});
  }

  // The function whose body was read last, if it was declared by that.
  void NoteAccessor(const Name& name) {
    const CppFunction& function = outline_.functions.back();
    const bool declared =
        !outline_.declared.empty() && outline_.declared.back().words == name.words;
    if (declared) outline_.declared.back().is_accessor = function.line == function.last_line;
  }

  void AddWord(Name* name) {
    AddToName(Text(at_), name);
    if (IsWord(tokens_[at_])) name->words.push_back(at_);
    ++at_;
  }

  // Words make one name when '::' or '~' joins them.
  static void AddToName(const std::string& text, Name* name) {
    const bool joins = text == "::" || name->text.ends_with("::") || name->text.ends_with('~');
    if (!joins) *name = {};
    name->text += text;
  }

  std::string TakeOperatorName() {
    std::string name = Text(at_++);
    if (Is("(")) {
      at_ += 2;
      return name + "()";
    }
    if (IsWord(tokens_[at_])) name += " ";
    while (at_ < tokens_.size() && !Is("(")) name += Text(at_++);
    return name;
  }

  bool IsAccess(size_t begin) const {
    static const std::set<std::string> access = {"public", "protected", "private"};
    return at_ == begin + 1 && access.contains(Before());
  }

  // Whether the '(' here opens parameters, and not what a word of the language is about.
  bool NamesFunction() const {
    static const std::set<std::string> others = {"alignas",  "decltype",      "explicit",
                                                 "noexcept", "__attribute__", "requires"};
    return at_ > 0 && !others.contains(Before());
  }

  // The '{' here follows a member's or base's name in a constructor's initialisers.
  bool IsMemberInitialiser() const {
    return at_ > 0 && (IsWord(tokens_[at_ - 1]) || Before() == ">");
  }

  // The '{' here belongs to a requires-expression: 'requires {' or 'requires(T t) {' where a
  // value may stand.
  bool IsRequirement() const {
    if (Before() == "requires") return true;
    if (Before() != ")") return false;
    size_t open = at_ - 1;
    while (open > 0 && Closing(open) != at_ - 1) --open;
    static const std::set<std::string> values = {"requires", "&&", "||", "(", "!", "="};
    return open > 1 && Text(open - 1) == "requires" && values.contains(Text(open - 2));
  }

  void SkipInitialiser() {
    while (at_ < tokens_.size() && !Is(";") && !Is("}")) SkipPart();
    if (Is(";")) ++at_;
  }

  // The '{' here opens a function's body.
  void TakeBody(const std::string& name, size_t begin) {
    const size_t end = Closing(at_);
    CppFunction function{name, tokens_[begin].line, 0, 1};
    static const std::set<std::string> branches = {"if", "for", "while", "case", "catch",
                                                   "?",  "&&",  "||",    "and",  "or"};
    for (size_t at = at_; at < end && at < tokens_.size(); ++at) {
      // Written without a space before it, && is a reference.
      const bool reference = Text(at) == "&&" && !tokens_[at].spaced;
      if (branches.contains(Text(at)) && !reference) ++function.complexity;
    }
    function.last_line = tokens_[std::min(end, tokens_.size() - 1)].line;
    outline_.functions.push_back(function);
    at_ = end + 1;
  }

  std::vector<CppToken> tokens_;
  size_t at_ = 0;
  CppOutline outline_;
};

}  // namespace

CppOutline OutlineOf(const SourceFile& file) { return Reader(file).Read(); }

}  // namespace macrame::tests
