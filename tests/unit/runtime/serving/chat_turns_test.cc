// Chats that templates refuse as they stand: turns of one role in a row, a first turn that is not
// the user's, system messages, several calls in one message.

#include "runtime/serving/chat_turns.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/serving/generation_job.h"
#include "tests/unit/runtime/text/model_folder.h"

namespace macrame::runtime::engine {
namespace {

struct Said {
  const char* role;
  std::string content{};
  std::vector<std::string> calls{};  // ids, of the tool "f"
  std::string answers{};             // the call that a tool's message answers
  std::string name{};                // of who speaks
};

v1::GenerateRequest ChatOf(const std::vector<Said>& said) {
  v1::GenerateRequest request;
  for (const Said& one : said) {
    v1::ChatMessage& message = *request.add_messages();
    message.set_role(one.role);
    message.set_content(one.content);
    message.set_tool_call_id(one.answers);
    message.set_name(one.name);
    for (const std::string& id : one.calls) {
      v1::ToolCall& call = *message.add_tool_calls();
      call.set_id(id);
      call.set_name("f");
      call.set_arguments("{}");
    }
  }
  return request;
}

// "role:content" with "(name)" of who speaks and "+n" for n calls, one behind the other.
std::string Told(const std::vector<Said>& said, const TurnRules& rules) {
  const v1::GenerateRequest request = ChatOf(said);
  std::string told;
  for (const v1::ChatMessage& turn : TurnsOf(request, request.messages_size(), rules)) {
    absl::StrAppend(&told, told.empty() ? "" : " | ", turn.role());
    if (!turn.name().empty()) absl::StrAppend(&told, "(", turn.name(), ")");
    absl::StrAppend(&told, ":", turn.content());
    if (turn.tool_calls_size() > 0) absl::StrAppend(&told, "+", turn.tool_calls_size());
  }
  return told;
}

constexpr TurnRules kAlternating = {.alternating_turns = true};

TEST(ChatTurns, NeighborsOfOneRoleAreJoinedByAnEmptyLine) {
  EXPECT_EQ(
      Told({{"user", "a"}, {"user", "b"}, {"assistant", "c"}, {"assistant", "d"}}, kAlternating),
      "user:a\n\nb | assistant:c\n\nd");
  EXPECT_EQ(Told({{"user", "a"}, {"user", "b"}}, {}), "user:a | user:b")
      << "templates that take it get what the client sent";
}

TEST(ChatTurns, AJoinedTurnHasANameOnlyWhereAllItsTextIsOfOneSpeaker) {
  const Said alice = {.role = "user", .content = "a", .name = "alice"};
  const Said bob = {.role = "user", .content = "b", .name = "bob"};
  EXPECT_EQ(Told({alice, bob}, {}), "user(alice):a | user(bob):b");
  EXPECT_EQ(Told({alice, alice}, kAlternating), "user(alice):a\n\na");
  EXPECT_EQ(Told({alice, bob}, kAlternating), "user:a\n\nb");
  const Said example = {.role = "system", .content = "s", .name = "example_user"};
  EXPECT_EQ(Told({alice, {.role = "assistant", .content = "c"}, example, bob}, kAlternating),
            "user(alice):a | assistant:c | user:s\n\nb");
}

TEST(ChatTurns, AStoppedAnswerIsNoTurn) {
  EXPECT_EQ(Told({{"user", "a"}, {"assistant", ""}, {"user", "b"}}, kAlternating), "user:a\n\nb");
}

TEST(ChatTurns, AMissingFirstUserTurnIsEmpty) {
  EXPECT_EQ(Told({{"assistant", "a"}, {"user", "b"}}, kAlternating),
            "user: | assistant:a | user:b");
  EXPECT_EQ(Told({{"system", "s"}, {"assistant", "a"}, {"user", "b"}}, kAlternating),
            "system:s | user: | assistant:a | user:b");
  EXPECT_EQ(Told({{"system", "s"}}, kAlternating), "system:s | user:");
}

TEST(ChatTurns, SystemTextStandsBeforeTheFirstUserTurn) {
  const TurnRules rules = {.no_system_message = true, .alternating_turns = true};
  EXPECT_EQ(Told({{"system", "s"}, {"user", "a"}, {"user", "b"}}, rules), "user:s\n\na\n\nb");
  EXPECT_EQ(Told({{"system", "s"}}, rules), "user:s");
  EXPECT_EQ(Told({{"developer", "s"}, {"system", "t"}, {"user", "a"}}, rules), "user:s\n\nt\n\na");
  EXPECT_EQ(Told({{"system", "s"}, {"assistant", "a"}, {"user", "b"}}, rules),
            "user:s | assistant:a | user:b");
}

TEST(ChatTurns, WordsBehindAResultGoToTheResult) {
  EXPECT_EQ(Told({{"user", "a"}, {"assistant", "", {"1"}}, {"tool", "r", {}, "1"}, {"user", "b"}},
                 kAlternating),
            "user:a | assistant:+1 | tool:r\n\nb");
}

TEST(ChatTurns, ADeniedCallHasAResult) {
  EXPECT_EQ(Told({{"user", "a"}, {"assistant", "", {"1"}}, {"user", "b"}}, kAlternating),
            "user:a | assistant:+1 | tool(f):This call has no result.\n\nb");
}

TEST(ChatTurns, SeveralCallsBecomeTurnsWithTheirResults) {
  const TurnRules rules = {.one_call_a_turn = true};
  EXPECT_EQ(Told({{"user", "a"},
                  {"assistant", "x", {"1", "2"}},
                  {"tool", "second", {}, "2"},
                  {"tool", "first", {}, "1"}},
                 rules),
            "user:a | assistant:x+1 | tool:first | assistant:+1 | tool:second");
}

TEST(ChatTurns, CallsAreToldAsTextWhereATemplateTakesNone) {
  const TurnRules rules = {.no_calls = true};
  EXPECT_EQ(Told({{"user", "a"}, {"assistant", "x", {"1"}}, {"tool", "r", {}, "1"}}, rules),
            "user:a | assistant:x\n\nI call the tool f with {} | user:The tool f answered:\nr");
}

// Templates as they are used, cut to what they check.
constexpr char kAlternatingTemplate[] =
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}";
constexpr char kQueryTemplate[] =
    "{% set ns = namespace(found=false) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.found = true %}{% endif %}{% endfor %}{% if not ns.found %}"
    "{{ raise_exception('No user query found in messages.') }}{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";

class TurnsOfTemplates : public ::testing::Test {
 protected:
  std::string Prompt(const std::string& chat_template, const std::vector<Said>& said) {
    const std::string folder = text::NewFolder("model");
    std::filesystem::copy(text::Fixture("byte_level"), folder,
                          std::filesystem::copy_options::recursive);
    text::WriteFile(folder + "/chat_template.jinja", chat_template);
    auto loaded = LoadModelText(folder);
    if (!loaded.ok()) return loaded.status().ToString();
    const v1::GenerateRequest request = ChatOf(said);
    auto ids = EncodeMessages(request, request.messages_size(), **loaded, 0, true);
    if (!ids.ok()) return ids.status().ToString();
    return (*loaded)->tokenizer.Decode(*ids, false).value_or("no text");
  }
};

TEST_F(TurnsOfTemplates, ARefusalIsAnsweredByWhatTheTemplateTakes) {
  EXPECT_EQ(Prompt(kAlternatingTemplate, {{"user", "a"}, {"user", "b"}}), "[user]a\n\nb");
  EXPECT_EQ(Prompt(kAlternatingTemplate, {{"system", "s"}, {"user", "a"}}), "[user]s\n\na");
  EXPECT_EQ(Prompt(kAlternatingTemplate, {{"assistant", "a"}, {"user", "b"}}),
            "[user][assistant]a[user]b");
  EXPECT_EQ(
      Prompt(kAlternatingTemplate,
             {{"user", "a"}, {"assistant", "", {"1"}}, {"tool", "r", {}, "1"}, {"user", "b"}}),
      "[user]a[assistant]I call the tool f with {}[user]The tool f answered:\nr\n\nb");
}

TEST_F(TurnsOfTemplates, WhatProbesDoNotFindIsTriedAfterARefusal) {
  EXPECT_EQ(Prompt(kQueryTemplate, {{"user", "a"}, {"user", "b"}}), "[user]a[user]b");
  EXPECT_EQ(Prompt(kQueryTemplate, {{"system", "s"}}), "[system]s[user]");
}

}  // namespace
}  // namespace macrame::runtime::engine
