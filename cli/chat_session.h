#pragma once

// A conversation with a model as it is typed: lines become questions and commands, questions and
// answers become requests. Pure.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "macrame/v1/rank.pb.h"

namespace macrame::cli {

// What is asked with every question.
struct ChatSettings {
  std::string system;
  std::optional<double> temperature, top_p, min_p;
  std::optional<uint32_t> top_k, max_tokens;
  std::optional<int64_t> seed;
  std::optional<bool> thinking;
};

// Puts typed lines together. A text between lines with """ is one question, and so is one whose
// lines end with a backslash but for the last.
class ChatLines {
 public:
  // The question or command that `line` completes; nullopt: more lines belong to it.
  std::optional<std::string> Add(std::string_view line);
  // Whether lines are still to come.
  bool is_open() const { return is_open_; }
  // Forgets what was begun.
  void Drop();

 private:
  std::string text_;
  bool is_open_ = false;
  bool is_quoted_ = false;
};

class ChatSession {
 public:
  ChatSession(std::string deployment, ChatSettings settings)
      : deployment_(std::move(deployment)), settings_(std::move(settings)) {}

  struct Outcome {
    std::string told;  // to be shown, with line breaks
    bool is_over = false;
  };
  // The commands that a line can begin with.
  static const std::vector<std::string>& CommandWords();
  // What a line that begins with "/" does.
  Outcome Command(std::string_view line);

  // The request for `question`, after all that was said.
  v1::GenerateRequest Request(const std::string& question) const;
  // A question was answered, or its answer was stopped; one without text leaves no trace.
  void NoteAnswer(const std::string& question, const std::string& answer);
  // Forgets the oldest question with its answer; false: there is none.
  bool ForgetOldest();

  size_t turns() const { return turns_.size(); }
  const ChatSettings& settings() const { return settings_; }

 private:
  struct Turn {
    std::string question, answer;
  };
  std::string Set(const std::vector<std::string>& words);
  std::string Show() const;

  const std::string deployment_;
  ChatSettings settings_;
  std::vector<Turn> turns_;
};

}  // namespace macrame::cli
