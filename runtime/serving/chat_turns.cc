#include "runtime/serving/chat_turns.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace macrame::runtime::engine {
namespace {

using Turns = std::vector<v1::ChatMessage>;

constexpr char kNoResult[] = "This call has no result.";

// Whether the template renders the chat, with each of these words in it.
bool Shows(const text::ChatTemplate& chat_template, std::string_view messages_json,
           std::initializer_list<const char*> words) {
  text::ChatPrompt prompt;
  prompt.messages_json = messages_json;
  prompt.local_unix_s = 0;
  const auto shown = chat_template.Render(prompt);
  return shown.ok() && std::all_of(words.begin(), words.end(), [&shown](const char* word) {
           return absl::StrContains(*shown, word);
         });
}

// Several calls in one message are refused, or all but the first are left out.
bool TakesOneCallATurn(const text::ChatTemplate& chat_template) {
  const auto chat = [](int calls, bool as_text) {
    std::string made, results;
    for (int i = 1; i <= calls; ++i) {
      const std::string id = absl::StrCat("abcdefgh", i);
      absl::StrAppend(&made, i > 1 ? ", " : "", R"({"id": ")", id,
                      R"(", "type": "function", "function": {"name": "f", "arguments": )",
                      as_text ? R"("{\"p\": \"k)" : R"({"p": "k)", i,
                      as_text ? R"(q\"}"}})" : R"(q"}}})");
      absl::StrAppend(&results, R"(, {"role": "tool", "name": "f", "tool_call_id": ")", id,
                      R"(", "content": "b"})");
    }
    return absl::StrCat(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "")",
                        R"(, "tool_calls": [)", made, "]}", results, "]");
  };
  for (const bool as_text : {false, true}) {
    if (Shows(chat_template, chat(1, as_text), {"k1q"})) {
      return !Shows(chat_template, chat(2, as_text), {"k1q", "k2q"});
    }
  }
  return Shows(chat_template, chat(1, false), {}) && !Shows(chat_template, chat(2, false), {});
}

bool IsSystem(const v1::ChatMessage& message) {
  return message.role() == "system" || message.role() == "developer";
}

bool HasCalls(const v1::ChatMessage& message) { return message.tool_calls_size() > 0; }

v1::ChatMessage UserTurn(std::string content) {
  v1::ChatMessage turn;
  turn.set_role("user");
  turn.set_content(std::move(content));
  return turn;
}

// By an empty line, where both say something.
void AppendText(const std::string& text, std::string* to) {
  absl::StrAppend(to, to->empty() || text.empty() ? "" : "\n\n", text);
}

// One system message at the beginning. What a later one says stands behind the message before it,
// where the client put it, and becomes the user's.
Turns WithOneSystemMessage(Turns given) {
  Turns turns;
  bool is_moved = false;  // the last one is a user's that was the system's
  for (v1::ChatMessage& message : given) {
    const bool is_first = turns.empty();
    const bool is_system = IsSystem(message);
    const bool joins = !is_first && (is_system ? turns.back().role() != "assistant"
                                               : is_moved && message.role() == "user");
    if (joins) {
      absl::StrAppend(turns.back().mutable_content(), "\n\n", message.content());
      continue;
    }
    turns.push_back(std::move(message));
    is_moved = is_system && !is_first;
    if (!is_moved) continue;
    turns.back().set_role("user");
    turns.back().clear_name();  // the user is somebody else
  }
  return turns;
}

// The system message's text before the first user turn's, as Gemma's and Mistral's own code puts
// it.
Turns WithoutSystemMessage(Turns turns) {
  if (turns.empty() || !IsSystem(turns[0])) return turns;
  std::string text = turns[0].content();
  turns.erase(turns.begin());
  const auto user = std::find_if(turns.begin(), turns.end(),
                                 [](const v1::ChatMessage& turn) { return turn.role() == "user"; });
  if (user == turns.end()) {
    turns.insert(turns.begin(), UserTurn(std::move(text)));
  } else {
    AppendText(user->content(), &text);
    user->set_content(std::move(text));
  }
  return turns;
}

// Calls and results as text that any template shows.
Turns WithoutCalls(Turns given) {
  std::map<std::string, std::string> names;  // by the ids of the calls so far
  Turns turns;
  for (v1::ChatMessage& message : given) {
    for (const v1::ToolCall& call : message.tool_calls()) {
      names[call.id()] = call.name();
      AppendText(absl::StrCat("I call the tool ", call.name(), " with ", call.arguments()),
                 message.mutable_content());
    }
    message.clear_tool_calls();
    if (message.role() == "tool") {
      std::string name = message.name();
      const auto called = names.find(message.tool_call_id());
      if (name.empty() && called != names.end()) name = called->second;
      message = UserTurn(absl::StrCat("The tool ", name, name.empty() ? "" : " ", "answered:\n",
                                      message.content()));
    }
    turns.push_back(std::move(message));
  }
  return turns;
}

// Each call in a message of its own, with its result behind it.
Turns WithOneCallATurn(Turns given) {
  Turns turns;
  for (size_t i = 0; i < given.size(); ++i) {
    v1::ChatMessage& message = given[i];
    if (message.tool_calls_size() < 2) {
      turns.push_back(std::move(message));
      continue;
    }
    size_t end = i + 1;
    while (end < given.size() && given[end].role() == "tool") ++end;
    std::vector<bool> is_told(end, false);
    const v1::ChatMessage all = message;
    for (const v1::ToolCall& call : all.tool_calls()) {
      v1::ChatMessage one = all;
      // What was said and thought before the calls stands before the first one alone.
      if (&call != &all.tool_calls(0)) {
        one.clear_content();
        one.clear_reasoning();
      }
      one.clear_tool_calls();
      *one.add_tool_calls() = call;
      turns.push_back(std::move(one));
      for (size_t result = i + 1; result < end; ++result) {
        if (is_told[result] || given[result].tool_call_id() != call.id()) continue;
        is_told[result] = true;
        turns.push_back(given[result]);
      }
    }
    for (size_t result = i + 1; result < end; ++result) {
      if (!is_told[result]) turns.push_back(std::move(given[result]));
    }
    i = end - 1;
  }
  return turns;
}

// `next` behind a turn of the same role.
void Join(const v1::ChatMessage& next, v1::ChatMessage* turn) {
  if (next.name() != turn->name()) turn->clear_name();  // it is of two speakers
  AppendText(next.content(), turn->mutable_content());
  AppendText(next.reasoning(), turn->mutable_reasoning());
  turn->mutable_tool_calls()->MergeFrom(next.tool_calls());
}

// User and assistant in turns, the user first. Templates count no calls and no results, so between
// results and the user's next words an answer would have to stand: these words go to the results.
class Alternation {
 public:
  Turns Of(Turns given) {
    for (v1::ChatMessage& message : given) Add(std::move(message));
    return std::move(turns_);
  }

 private:
  void Add(v1::ChatMessage message) {
    const std::string& role = message.role();
    if (IsSystem(message) && turns_.empty()) {
      turns_.push_back(std::move(message));
      return;
    }
    // An answer that was stopped before its first word.
    if (role == "assistant" && message.content().empty() && !HasCalls(message)) return;
    if (role == "user" && !turns_.empty() && HasCalls(turns_.back())) AddMissingResults();
    const bool is_first = turns_.empty() || IsSystem(turns_.back());
    if (is_first && role != "user") turns_.push_back(UserTurn(""));
    v1::ChatMessage* last = turns_.empty() ? nullptr : &turns_.back();
    if (last != nullptr && role == "user" && last->role() == "tool") {
      AppendText(message.content(), last->mutable_content());
    } else if (last != nullptr && role != "tool" && last->role() == role) {
      Join(message, last);
    } else {
      turns_.push_back(std::move(message));
    }
  }

  void AddMissingResults() {
    const v1::ChatMessage calls = turns_.back();
    for (const v1::ToolCall& call : calls.tool_calls()) {
      v1::ChatMessage result;
      result.set_role("tool");
      result.set_tool_call_id(call.id());
      result.set_name(call.name());
      result.set_content(kNoResult);
      turns_.push_back(std::move(result));
    }
  }

  Turns turns_;
};

// A chat of system messages alone has no turn at all.
void AddFirstTurn(Turns* turns) {
  if (!turns->empty() && IsSystem(turns->back())) turns->push_back(UserTurn(""));
}

}  // namespace

TurnRules ProbeTurnRules(const text::ChatTemplate& chat_template, bool takes_tools) {
  const auto shows = [&](std::string_view messages, std::initializer_list<const char*> words) {
    return Shows(chat_template, messages, words);
  };
  TurnRules rules;
  // A template that does not render these for other reasons says nothing.
  if (!shows(R"([{"role": "user", "content": "k1q"}])", {"k1q"})) return rules;
  const bool takes_system =
      shows(R"([{"role": "system", "content": "k1q"}, {"role": "user", "content": "k2q"}])",
            {"k1q", "k2q"});
  rules.no_system_message = !takes_system;
  rules.one_system_message =
      takes_system &&
      !shows(R"([{"role": "system", "content": "k1q"}, {"role": "system", "content": "k2q"}, )"
             R"({"role": "user", "content": "k3q"}, {"role": "system", "content": "k4q"}])",
             {"k1q", "k2q", "k3q", "k4q"});
  rules.alternating_turns =
      !shows(R"([{"role": "user", "content": "k1q"}, {"role": "user", "content": "k2q"}])",
             {"k1q", "k2q"}) ||
      !shows(R"([{"role": "assistant", "content": "k1q"}, {"role": "user", "content": "k2q"}])",
             {"k1q", "k2q"});
  rules.no_calls = rules.alternating_turns && !takes_tools;
  if (takes_tools) rules.one_call_a_turn = TakesOneCallATurn(chat_template);
  return rules;
}

std::vector<TurnRules> StricterRules(const TurnRules& rules) {
  std::vector<TurnRules> stricter;
  TurnRules next = rules;
  const auto add = [&] {
    if (next != (stricter.empty() ? rules : stricter.back())) stricter.push_back(next);
  };
  next.one_system_message = next.alternating_turns = true;
  add();
  next.one_call_a_turn = true;
  add();
  next.no_system_message = next.no_calls = true;
  add();
  return stricter;
}

std::vector<v1::ChatMessage> TurnsOf(const v1::GenerateRequest& request, int count,
                                     const TurnRules& rules) {
  Turns turns(request.messages().begin(), request.messages().begin() + count);
  if (rules == TurnRules()) return turns;
  if (rules.no_calls) turns = WithoutCalls(std::move(turns));
  if (rules.one_system_message || rules.no_system_message || rules.alternating_turns) {
    turns = WithOneSystemMessage(std::move(turns));
  }
  if (rules.alternating_turns) turns = Alternation().Of(std::move(turns));
  if (rules.no_system_message) turns = WithoutSystemMessage(std::move(turns));
  if (rules.alternating_turns) AddFirstTurn(&turns);
  if (rules.one_call_a_turn) turns = WithOneCallATurn(std::move(turns));
  return turns;
}

}  // namespace macrame::runtime::engine
