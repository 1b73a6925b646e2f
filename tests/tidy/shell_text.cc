#include "tests/tidy/shell_text.h"

#include <algorithm>
#include <cctype>

namespace macrame::tests {
namespace {

enum class Frame { kDouble, kBrace, kSubstitution, kParenthesis };

struct OpenFrame {
  Frame kind;
  int open_cases = 0;  // `case`s without their `esac` yet
};

struct HereDocument {
  std::string end;
  bool quoted = false;
  bool indented = false;  // <<-
  bool substituted = false;
};

class ShellReader {
 public:
  ShellLine Read(const std::string& line) {
    out_ = {};
    if (!documents_.empty()) {
      ReadDocument(line);
      return out_;
    }
    at_ = 0;
    word_.clear();
    while (at_ < line.size() && ReadCharacter(line)) {
    }
    EndWord();
    if (!pending_.empty()) documents_.swap(pending_);
    return out_;
  }

 private:
  // False at a comment.
  bool ReadCharacter(const std::string& line) {
    const char c = line[at_];
    if (single_ != 0) {
      ReadSingle(line);
      return true;
    }
    if (c == '\\' && at_ + 1 < line.size()) {
      EndWord();
      Keep(line, 2, '_');
      return true;
    }
    if (c == '\'' && !InDouble()) {
      single_ = at_ > 0 && line[at_ - 1] == '$' ? '$' : '\'';
      KeepText(c);
      return true;
    }
    if (c == '"') {
      ToggleDouble();
      Keep(line, 1, '_');
      return true;
    }
    if (ReadOpening(line)) return true;
    if (InDouble()) {
      ReadDouble(line);
      return true;
    }
    if (c == '#' && InCode() && (at_ == 0 || Separates(line[at_ - 1]))) return false;
    ReadCode(line);
    return true;
  }

  void ReadSingle(const std::string& line) {
    if (single_ == '$' && line[at_] == '\\' && at_ + 1 < line.size()) {
      KeepText(line[at_]);
    } else if (line[at_] == '\'') {
      single_ = 0;
    }
    KeepText(line[at_]);
  }

  // ${ and $( and <( and >(; at_ is moved over them.
  bool ReadOpening(const std::string& line) {
    if (at_ + 1 >= line.size()) return false;
    const char c = line[at_], next = line[at_ + 1];
    if (c == '$' && next == '{') {
      stack_.push_back({Frame::kBrace});
      Keep(line, 2, InDouble() ? '_' : '\0');
      return true;
    }
    const bool process = (c == '<' || c == '>') && !InDouble() && InCode();
    if (next != '(' || (c != '$' && !process)) return false;
    EndWord();
    stack_.push_back({Frame::kSubstitution});
    Keep(line, 2, '\0');
    return true;
  }

  void ReadDouble(const std::string& line) {
    if (line[at_] == '}' && !stack_.empty() && stack_.back().kind == Frame::kBrace) {
      stack_.pop_back();
    }
    Keep(line, 1, '_');
  }

  void ReadCode(const std::string& line) {
    const char c = line[at_];
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      word_.push_back(c);
    } else {
      EndWord();
    }
    if (c == '}' && !stack_.empty() && stack_.back().kind == Frame::kBrace) stack_.pop_back();
    if (c == '(' && InCode()) stack_.push_back({Frame::kParenthesis});
    if (c == ')' && InCode()) CloseParenthesis();
    if (c == '<' && InCode() && line.compare(at_, 2, "<<") == 0) {
      const bool is_string = line.compare(at_, 3, "<<<") == 0;
      if (!is_string) OpenDocument(line);
      Keep(line, is_string ? 3 : 2, '\0');
      return;
    }
    Keep(line, 1, '\0');
  }

  void CloseParenthesis() {
    if (stack_.empty()) return;
    if (stack_.back().open_cases > 0) {
      if (InSubstitution()) out_.case_pattern_in_substitution = true;
      return;
    }
    stack_.pop_back();
  }

  void EndWord() {
    if (!stack_.empty() && InCode()) {
      if (word_ == "case") ++stack_.back().open_cases;
      if (word_ == "esac" && stack_.back().open_cases > 0) --stack_.back().open_cases;
    }
    word_.clear();
  }

  void OpenDocument(const std::string& line) {
    HereDocument document;
    size_t i = at_ + 2;
    if (i < line.size() && line[i] == '-') {
      document.indented = true;
      ++i;
    }
    while (i < line.size() && line[i] == ' ') ++i;
    for (; i < line.size() && !Separates(line[i]) && line[i] != ')'; ++i) {
      const bool quote = line[i] == '\'' || line[i] == '"' || line[i] == '\\';
      document.quoted = document.quoted || quote;
      if (!quote) document.end.push_back(line[i]);
    }
    document.substituted = InSubstitution();
    const bool is_shift = document.end.empty() || std::isdigit(document.end.front()) != 0;
    if (!is_shift) pending_.push_back(document);
  }

  void ReadDocument(const std::string& line) {
    const HereDocument& document = documents_.front();
    size_t start = 0;
    while (document.indented && start < line.size() && line[start] == '\t') ++start;
    if (line.substr(start) == document.end) {
      documents_.erase(documents_.begin());
      return;
    }
    if (document.substituted && line.find_first_of("'\"`()") != std::string::npos) {
      out_.signs_in_substituted_document = true;
    }
    if (!document.quoted) out_.text = out_.expanded = line;
  }

  void ToggleDouble() {
    if (!stack_.empty() && stack_.back().kind == Frame::kDouble) {
      stack_.pop_back();
    } else {
      stack_.push_back({Frame::kDouble});
    }
  }

  // Of "…", also within its ${…}.
  bool InDouble() const {
    for (size_t i = stack_.size(); i > 0; --i) {
      if (stack_[i - 1].kind != Frame::kBrace) return stack_[i - 1].kind == Frame::kDouble;
    }
    return false;
  }

  bool InCode() const {
    return stack_.empty() || stack_.back().kind == Frame::kSubstitution ||
           stack_.back().kind == Frame::kParenthesis;
  }

  bool InSubstitution() const {
    return std::any_of(stack_.begin(), stack_.end(),
                       [](const OpenFrame& frame) { return frame.kind == Frame::kSubstitution; });
  }

  static bool Separates(char c) {
    return c == ' ' || c == '\t' || c == ';' || c == '&' || c == '|' || c == '(';
  }

  void KeepText(char c) {
    out_.text.push_back(c);
    ++at_;
  }

  // `mask` stands for each character in the code; '\0': the character itself.
  void Keep(const std::string& line, size_t count, char mask) {
    out_.text.append(line, at_, count);
    out_.expanded.append(line, at_, count);
    if (mask == '\0') {
      out_.code.append(line, at_, count);
    } else {
      out_.code.append(count, mask);
    }
    at_ += count;
  }

  std::vector<OpenFrame> stack_;
  std::vector<HereDocument> pending_, documents_;
  char single_ = 0;  // within '…' ('\'') or $'…' ('$')
  ShellLine out_;
  size_t at_ = 0;
  std::string word_;
};

}  // namespace

std::vector<ShellLine> ReadShellLines(const std::vector<std::string>& lines) {
  ShellReader reader;
  std::vector<ShellLine> read;
  read.reserve(lines.size());
  for (const std::string& line : lines) read.push_back(reader.Read(line));
  return read;
}

}  // namespace macrame::tests
