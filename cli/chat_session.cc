#include "cli/chat_session.h"

#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/format/text.h"
#include "proto/suggestions.h"

namespace macrame::cli {
namespace {

constexpr absl::string_view kQuotes = "\"\"\"";

constexpr char kChatHelp[] =
    "  /clear                  forget what was said\n"
    "  /system TEXT            instructions ahead of the conversation; without a text: none\n"
    "  /set NAME VALUE         temperature, top_p, top_k, min_p, seed, max_tokens (numbers),\n"
    "                          thinking (on, off); 'default' for what the model says\n"
    "  /show                   the settings\n"
    "  /help                   this list\n"
    "  /bye                    leave; so does Ctrl-D\n"
    "Arrow keys edit, and bring back what was typed before; Ctrl-R searches it. Ctrl-C stops an\n"
    "answer, or drops the line that is typed. What is pasted is one question, however many lines "
    "it\n"
    "has. At the keyboard, \"\"\" begins and ends a question of several lines; a line that ends\n"
    "with a backslash goes on with the next.\n";

const std::vector<std::string>& SettingWords() {
  static const std::vector<std::string> words = {"temperature", "top_p",      "top_k",   "min_p",
                                                 "seed",        "max_tokens", "thinking"};
  return words;
}

void AddMessage(const char* role, const std::string& content, v1::GenerateRequest* request) {
  v1::ChatMessage& message = *request->add_messages();
  message.set_role(role);
  message.set_content(content);
}

// False: `text` is no number from `low` to `high`.
bool SetNumber(const std::string& text, double low, double high, std::optional<double>* to) {
  double value = 0;
  if (text == "default") return to->reset(), true;
  if (!absl::SimpleAtod(text, &value) || !(value >= low && value <= high)) return false;
  *to = value;
  return true;
}

template <typename Integer>
bool SetInteger(const std::string& text, Integer low, std::optional<Integer>* to) {
  Integer value = 0;
  if (text == "default") return to->reset(), true;
  if (!absl::SimpleAtoi(text, &value) || value < low) return false;
  *to = value;
  return true;
}

bool SetSwitch(const std::string& text, std::optional<bool>* to) {
  if (text != "on" && text != "off" && text != "default") return false;
  *to = text == "on";
  if (text == "default") to->reset();
  return true;
}

template <typename Value>
std::string SettingLine(const char* name, const std::optional<Value>& value) {
  return absl::StrCat("  ", name, std::string(13 - absl::string_view(name).size(), ' '),
                      value.has_value() ? absl::StrCat(*value) : "default", "\n");
}

}  // namespace

std::optional<std::string> ChatLines::Add(std::string_view typed) {
  absl::string_view line(typed.data(), typed.size());
  if (!is_open_ && absl::ConsumePrefix(&line, kQuotes)) is_open_ = is_quoted_ = true;
  if (is_quoted_) {
    const bool ends = absl::ConsumeSuffix(&line, kQuotes);
    absl::StrAppend(&text_, line, ends ? "" : "\n");
    if (!ends) return std::nullopt;
  } else {
    is_open_ = absl::ConsumeSuffix(&line, "\\");
    absl::StrAppend(&text_, line, is_open_ ? "\n" : "");
    if (is_open_) return std::nullopt;
  }
  std::string whole(absl::StripAsciiWhitespace(text_));
  Drop();
  return whole;
}

void ChatLines::Drop() {
  text_.clear();
  is_open_ = is_quoted_ = false;
}

const std::vector<std::string>& ChatSession::CommandWords() {
  static const std::vector<std::string> words = {"/clear", "/system", "/set", "/show",
                                                 "/help",  "/bye",    "/exit"};
  return words;
}

ChatSession::Outcome ChatSession::Command(std::string_view typed) {
  const absl::string_view line(typed.data(), typed.size());
  const std::vector<std::string> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
  const std::string word = words.empty() ? std::string(line) : words[0];
  if (word == "/bye" || word == "/exit") return {"", true};
  if (word == "/help" || word == "/?") return {kChatHelp};
  if (word == "/show") return {Show()};
  if (word == "/set") return {Set(words)};
  if (word == "/clear") {
    turns_.clear();
    return {"Forgotten. The instructions (/system) and settings stay.\n"};
  }
  if (word == "/system") {
    settings_.system = std::string(absl::StripAsciiWhitespace(line.substr(word.size())));
    return {settings_.system.empty() ? "No instructions any more.\n" : "Noted.\n"};
  }
  return {absl::StrCat("There is no command ", Printable(word), DidYouMean(word, CommandWords()),
                       " /help lists them.\n")};
}

std::string ChatSession::Set(const std::vector<std::string>& words) {
  if (words.size() != 3) return "/set takes a name and a value: /set temperature 0.5\n";
  const std::string& name = words[1];
  const std::string& value = words[2];
  const char* needed = nullptr;
  if (name == "temperature") {
    needed = SetNumber(value, 0, 2, &settings_.temperature) ? "" : "a number from 0 to 2";
  } else if (name == "top_p") {
    needed = SetNumber(value, 0, 1, &settings_.top_p) ? "" : "a number from 0 to 1";
  } else if (name == "min_p") {
    needed = SetNumber(value, 0, 1, &settings_.min_p) ? "" : "a number from 0 to 1";
  } else if (name == "top_k") {
    needed = SetInteger<uint32_t>(value, 0, &settings_.top_k) ? "" : "a number from 0";
  } else if (name == "max_tokens") {
    needed = SetInteger<uint32_t>(value, 1, &settings_.max_tokens) ? "" : "a number from 1";
  } else if (name == "seed") {
    needed = SetInteger<int64_t>(value, 0, &settings_.seed) ? "" : "a number from 0";
  } else if (name == "thinking") {
    needed = SetSwitch(value, &settings_.thinking) ? "" : "on or off";
  } else {
    return absl::StrCat("There is no setting '", Printable(name), "'",
                        DidYouMean(name, SettingWords()), " /help lists them.\n");
  }
  if (*needed == '\0') return "";
  return absl::StrCat(name, " is ", needed, ", or 'default'; not '", Printable(value), "'\n");
}

std::string ChatSession::Show() const {
  std::optional<std::string> thinking;
  if (settings_.thinking.has_value()) thinking = *settings_.thinking ? "on" : "off";
  return absl::StrCat(
      "  model        ", Printable(deployment_), "\n", "  system       ",
      settings_.system.empty() ? "none" : Printable(settings_.system), "\n",
      SettingLine("temperature", settings_.temperature), SettingLine("top_p", settings_.top_p),
      SettingLine("top_k", settings_.top_k), SettingLine("min_p", settings_.min_p),
      SettingLine("seed", settings_.seed), SettingLine("max_tokens", settings_.max_tokens),
      SettingLine("thinking", thinking), "  ", Plural(turns_.size(), "question"), " remembered\n");
}

v1::GenerateRequest ChatSession::Request(const std::string& question) const {
  v1::GenerateRequest request;
  request.set_deployment(deployment_);
  if (!settings_.system.empty()) AddMessage("system", settings_.system, &request);
  for (const Turn& turn : turns_) {
    AddMessage("user", turn.question, &request);
    AddMessage("assistant", turn.answer, &request);
  }
  AddMessage("user", question, &request);
  v1::Sampling& sampling = *request.mutable_sampling();
  if (settings_.temperature.has_value()) sampling.set_temperature(*settings_.temperature);
  if (settings_.top_p.has_value()) sampling.set_top_p(*settings_.top_p);
  if (settings_.min_p.has_value()) sampling.set_min_p(*settings_.min_p);
  if (settings_.top_k.has_value()) sampling.set_top_k(*settings_.top_k);
  if (settings_.seed.has_value()) sampling.set_seed(static_cast<uint64_t>(*settings_.seed));
  if (settings_.max_tokens.has_value()) request.set_max_tokens(*settings_.max_tokens);
  if (settings_.thinking.has_value()) {
    request.mutable_reasoning()->set_enabled(*settings_.thinking);
  }
  return request;
}

void ChatSession::NoteAnswer(const std::string& question, const std::string& answer) {
  if (!answer.empty()) turns_.push_back({question, answer});
}

bool ChatSession::ForgetOldest() {
  if (turns_.empty()) return false;
  turns_.erase(turns_.begin());
  return true;
}

}  // namespace macrame::cli
