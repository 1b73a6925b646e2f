#include "tests/tidy/cpp_tokens.h"

#include <cctype>
#include <string_view>
#include <utility>

namespace macrame::tests {
namespace {

bool IsWordByte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return std::isalnum(byte) != 0 || c == '_' || byte >= 0x80;
}

class Tokenizer {
 public:
  explicit Tokenizer(const SourceFile& file) {
    for (const std::string& line : file.lines) text_ += line + "\n";
  }

  std::vector<CppToken> Read() {
    while (at_ < text_.size()) {
      if (!SkipBlank()) TakeToken();
    }
    return std::move(tokens_);
  }

 private:
  bool StartsWith(std::string_view what) const {
    return text_.compare(at_, what.size(), what) == 0;
  }

  // Passes `count` bytes and counts the lines among them.
  void Pass(size_t count) {
    for (; count > 0 && at_ < text_.size(); --count, ++at_) {
      if (text_[at_] == '\n') ++line_;
    }
  }

  void PassBehind(std::string_view what) {
    const size_t found = text_.find(what, at_);
    Pass(found == std::string::npos ? text_.size() - at_ : found + what.size() - at_);
  }

  // A preprocessor line goes on behind a backslash.
  void PassDirective() {
    while (at_ < text_.size() && text_[at_] != '\n') Pass(text_[at_] == '\\' ? 2 : 1);
    line_begins_ = true;
  }

  bool SkipBlank() {
    const char c = text_[at_];
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      if (c == '\n') line_begins_ = true;
      Pass(1);
    } else if (StartsWith("//")) {
      PassBehind("\n");
      line_begins_ = true;
    } else if (StartsWith("/*")) {
      PassBehind("*/");
    } else if (c == '#' && line_begins_) {
      PassDirective();
    } else {
      return false;
    }
    spaced_ = true;
    return true;
  }

  void Add(std::string text, size_t line) {
    tokens_.push_back({std::move(text), line, spaced_});
    spaced_ = line_begins_ = false;
  }

  void TakeToken() {
    const size_t line = line_;
    if (IsWordByte(text_[at_])) {
      const std::string word = TakeWord();
      if (word.ends_with('R') && text_[at_] == '"') {
        TakeRawString();
        Add("\"\"", line);
      } else {
        Add(word, line);
      }
    } else if (text_[at_] == '"' || text_[at_] == '\'') {
      const char quote = text_[at_];
      TakeLiteral(quote);
      Add(std::string(2, quote), line);
    } else {
      Add(TakeOperator(), line);
    }
  }

  // A word or a number; digits may be separated by quotes.
  std::string TakeWord() {
    const bool number = std::isdigit(static_cast<unsigned char>(text_[at_])) != 0;
    size_t end = at_;
    while (end < text_.size() &&
           (IsWordByte(text_[end]) || (number && (text_[end] == '\'' || text_[end] == '.')))) {
      ++end;
    }
    const std::string word = text_.substr(at_, end - at_);
    Pass(word.size());
    return word;
  }

  void TakeRawString() {
    const size_t open = text_.find('(', at_);
    PassBehind("(");
    // From the quote on: its delimiter.
    const size_t quote = text_.rfind('"', open);
    PassBehind(")" + text_.substr(quote + 1, open - quote - 1) + "\"");
  }

  void TakeLiteral(char quote) {
    Pass(1);
    while (at_ < text_.size() && text_[at_] != quote) Pass(text_[at_] == '\\' ? 2 : 1);
    Pass(1);
  }

  std::string TakeOperator() {
    for (const char* op : {"<=>", "...", "::", "->", "&&", "||", "==", "!=", "<=", ">=", "+=",
                           "-=",  "*=",  "/=", "%=", "&=", "|=", "^=", "++", "--", "<<"}) {
      if (!StartsWith(op)) continue;
      Pass(std::string_view(op).size());
      return op;
    }
    Pass(1);
    return text_.substr(at_ - 1, 1);
  }

  std::string text_;
  size_t at_ = 0;
  size_t line_ = 0;
  bool line_begins_ = true;  // no token of this line was read yet
  bool spaced_ = false;
  std::vector<CppToken> tokens_;
};

}  // namespace

bool IsWord(const CppToken& token) { return !token.text.empty() && IsWordByte(token.text[0]); }

std::vector<CppToken> CppTokens(const SourceFile& file) { return Tokenizer(file).Read(); }

}  // namespace macrame::tests
