// Requests of all dialects side by side: one conversation is one chat, whoever writes it down, and
// an error names what its own client sent.

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/dialects/chat_request.h"
#include "agentd/gateway/dialects/messages_request.h"
#include "agentd/gateway/dialects/ollama_request.h"
#include "agentd/gateway/dialects/response_request.h"
#include "agentd/gateway/dialects/token_request.h"

namespace macrame::agentd {
namespace {

// Members in the order in which they were written.
using Body = nlohmann::ordered_json;

constexpr size_t kDepthMax = 32;

template <typename Request>
std::string RefusalOf(const std::variant<Request, ApiError>& read) {
  const auto* error = std::get_if<ApiError>(&read);
  return error == nullptr ? "was taken" : error->message;
}

// --- one conversation in four forms --------------------------------------------------------------

struct Call {
  std::string id, name;
  Body arguments;
};
struct Turn {
  std::string text;       // the user's, or the model's
  std::string reasoning;  // the model's
  std::vector<Call> calls;
  std::vector<std::string> results;  // of the turn's calls, in their order
};

// The user's and the model's turns, one after the other; the user has the last word.
struct Conversation {
  std::string system;
  std::vector<std::pair<std::string, Turn>> turns;  // what was asked, what was answered
  std::string last;
};

class ConversationMaker {
 public:
  explicit ConversationMaker(uint64_t seed) : random_(seed) {}

  Conversation Make() {
    Conversation made;
    if (Below(2) == 0) made.system = Words();
    for (uint64_t i = Below(5); i > 0; --i) {
      Turn turn;
      if (Below(2) == 0) turn.reasoning = Words();
      for (uint64_t j = Below(3); j > 0; --j) {
        turn.calls.push_back({absl::StrCat("call_", ++calls_), absl::StrCat("tool_", Below(4)),
                              Below(3) == 0 ? Body::object() : Body{{"q", Words()}, {"a", 1}}});
        turn.results.push_back(Words());
      }
      if (turn.calls.empty() || Below(2) == 0) turn.text = Words();
      made.turns.emplace_back(Words(), std::move(turn));
    }
    made.last = Words();
    return made;
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  std::string Words() {
    static const char* const kWords[] = {"a", "Oslo?", " ", "é", "\"", "\\n", "\n", "日本", "{}"};
    std::string text = "w";
    for (uint64_t i = Below(5); i > 0; --i) text += kWords[Below(std::size(kWords))];
    return text;
  }

  std::mt19937_64 random_;
  int calls_ = 0;
};

Body ChatCalls(const Turn& turn, bool as_text) {
  Body calls = Body::array();
  for (const Call& call : turn.calls) {
    const Body arguments = as_text ? Body(call.arguments.dump()) : call.arguments;
    calls.push_back({{"id", call.id},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", arguments}}}});
  }
  return calls;
}

// OpenAI's chat, and Ollama's, which differ in the reasoning's name and in arguments.
Body ChatMessages(const Conversation& said, bool is_ollama) {
  Body messages = Body::array();
  if (!said.system.empty()) messages.push_back({{"role", "system"}, {"content", said.system}});
  for (const auto& [asked, turn] : said.turns) {
    messages.push_back({{"role", "user"}, {"content", asked}});
    Body answer = {{"role", "assistant"}, {"content", turn.text}};
    if (!turn.reasoning.empty()) {
      answer[is_ollama ? "thinking" : "reasoning_content"] = turn.reasoning;
    }
    if (!turn.calls.empty()) answer["tool_calls"] = ChatCalls(turn, !is_ollama);
    messages.push_back(answer);
    for (size_t i = 0; i < turn.calls.size(); ++i) {
      messages.push_back(
          {{"role", "tool"}, {"tool_call_id", turn.calls[i].id}, {"content", turn.results[i]}});
    }
  }
  messages.push_back({{"role", "user"}, {"content", said.last}});
  return messages;
}

Body TextBlock(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

// Results stand before the words of the user's next message.
Body AnthropicMessages(const Conversation& said) {
  Body messages = Body::array();
  Body next = Body::array();
  for (const auto& [asked, turn] : said.turns) {
    next.push_back(TextBlock(asked));
    messages.push_back({{"role", "user"}, {"content", std::exchange(next, Body::array())}});
    Body blocks = Body::array();
    if (!turn.reasoning.empty()) {
      blocks.push_back({{"type", "thinking"}, {"thinking", turn.reasoning}, {"signature", "s"}});
    }
    if (!turn.text.empty()) blocks.push_back(TextBlock(turn.text));
    for (size_t i = 0; i < turn.calls.size(); ++i) {
      const Call& call = turn.calls[i];
      blocks.push_back(
          {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", call.arguments}});
      const Body content =
          i % 2 == 0 ? Body(turn.results[i]) : Body::array({TextBlock(turn.results[i])});
      next.push_back({{"type", "tool_result"}, {"tool_use_id", call.id}, {"content", content}});
    }
    messages.push_back({{"role", "assistant"}, {"content", blocks}});
  }
  next.push_back(TextBlock(said.last));
  messages.push_back({{"role", "user"}, {"content", next}});
  return messages;
}

Body ResponseItems(const Conversation& said) {
  Body items = Body::array();
  for (const auto& [asked, turn] : said.turns) {
    items.push_back({{"role", "user"}, {"content", asked}});
    if (!turn.reasoning.empty()) {
      const Body part = {{"type", "reasoning_text"}, {"text", turn.reasoning}};
      items.push_back(
          {{"type", "reasoning"}, {"summary", Body::array()}, {"content", Body::array({part})}});
    }
    if (!turn.text.empty()) {
      const Body part = {{"type", "output_text"}, {"text", turn.text}};
      items.push_back(
          {{"type", "message"}, {"role", "assistant"}, {"content", Body::array({part})}});
    }
    for (const Call& call : turn.calls) {
      items.push_back({{"type", "function_call"},
                       {"call_id", call.id},
                       {"name", call.name},
                       {"arguments", call.arguments.dump()}});
    }
    for (size_t i = 0; i < turn.calls.size(); ++i) {
      items.push_back({{"type", "function_call_output"},
                       {"call_id", turn.calls[i].id},
                       {"output", turn.results[i]}});
    }
  }
  items.push_back({{"role", "user"}, {"content", said.last}});
  return items;
}

// As lines, so that a difference can be read.
std::string Told(const v1::GenerateRequest& request) {
  std::string lines;
  for (const v1::ChatMessage& message : request.messages()) {
    absl::StrAppend(&lines, message.role(), " | ", message.content(), " | ", message.reasoning(),
                    " | ", message.tool_call_id());
    for (const v1::ToolCall& call : message.tool_calls()) {
      absl::StrAppend(&lines, " | ", call.id(), " ", call.name(), call.arguments());
    }
    lines += "\n";
  }
  return lines;
}

TEST(DialectRequests, OneConversationIsOneChatInEveryDialect) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Conversation said = ConversationMaker(seed).Make();
    Body chat = {{"model", "tiny"}, {"messages", ChatMessages(said, false)}};
    Body ollama = {{"model", "tiny"}, {"messages", ChatMessages(said, true)}};
    Body message = {{"model", "tiny"}, {"max_tokens", 9}, {"messages", AnthropicMessages(said)}};
    Body response = {{"model", "tiny"}, {"input", ResponseItems(said)}};
    if (!said.system.empty()) {
      message["system"] = Body::array({TextBlock(said.system)});
      response["instructions"] = said.system;
    }
    const auto as_chat = ParseChatRequest(chat.dump(), kDepthMax);
    const auto as_ollama = ParseOllamaChat(ollama.dump(), kDepthMax);
    const auto as_message = ParseMessagesRequest(message.dump(), kDepthMax);
    const auto as_response = ParseResponseRequest(response.dump(), kDepthMax, "");
    ASSERT_TRUE(std::holds_alternative<ChatRequest>(as_chat)) << RefusalOf(as_chat);
    ASSERT_TRUE(std::holds_alternative<OllamaRequest>(as_ollama)) << RefusalOf(as_ollama);
    ASSERT_TRUE(std::holds_alternative<ChatRequest>(as_message)) << RefusalOf(as_message);
    ASSERT_TRUE(std::holds_alternative<ResponseRequest>(as_response)) << RefusalOf(as_response);
    const std::string expected = Told(std::get<ChatRequest>(as_chat).generate);
    EXPECT_NE(expected.find(said.last), std::string::npos);
    EXPECT_EQ(Told(std::get<OllamaRequest>(as_ollama).chat.generate), expected);
    EXPECT_EQ(Told(std::get<ChatRequest>(as_message).generate), expected);
    EXPECT_EQ(Told(std::get<ResponseRequest>(as_response).chat.generate), expected);
    if (HasFailure()) return;
  }
}

// A conversation that goes on from a stored answer is the one that sends all of it again.
TEST(DialectRequests, AStoredBeginningIsTheSameAsSendingItAgain) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const Conversation said = ConversationMaker(seed).Make();
    const Body items = ResponseItems(said);
    const auto whole =
        ParseResponseRequest(Body{{"model", "tiny"}, {"input", items}}.dump(), kDepthMax, "");
    ASSERT_TRUE(std::holds_alternative<ResponseRequest>(whole)) << RefusalOf(whole);
    // Cut where the user speaks: there an answer was stored.
    for (size_t at = 1; at < items.size(); ++at) {
      if (items[at].value("role", "") != "user") continue;
      const Body first(Body::array_t(items.begin(), items.begin() + static_cast<long>(at)));
      const Body rest(Body::array_t(items.begin() + static_cast<long>(at), items.end()));
      const auto before =
          ParseResponseRequest(Body{{"model", "tiny"}, {"input", first}}.dump(), kDepthMax, "");
      ASSERT_TRUE(std::holds_alternative<ResponseRequest>(before)) << RefusalOf(before);
      const auto after = ParseResponseRequest(
          Body{{"model", "tiny"}, {"previous_response_id", "resp_1"}, {"input", rest}}.dump(),
          kDepthMax, std::get<ResponseRequest>(before).messages.dump());
      ASSERT_TRUE(std::holds_alternative<ResponseRequest>(after)) << RefusalOf(after);
      EXPECT_EQ(Told(std::get<ResponseRequest>(after).chat.generate),
                Told(std::get<ResponseRequest>(whole).chat.generate))
          << "seed " << seed << ", cut at " << at;
    }
  }
}

// --- /v1/responses -------------------------------------------------------------------------------

ResponseRequest Response(const Body& more) {
  Body body = {{"model", "tiny"}, {"input", "Hello"}};
  body.update(more);
  auto read = ParseResponseRequest(body.dump(), kDepthMax, "");
  EXPECT_TRUE(std::holds_alternative<ResponseRequest>(read)) << RefusalOf(read);
  return std::holds_alternative<ResponseRequest>(read) ? std::get<ResponseRequest>(std::move(read))
                                                       : ResponseRequest();
}

ApiError ResponseError(const Body& more) {
  Body body = {{"model", "tiny"}, {"input", "Hello"}};
  body.update(more);
  auto read = ParseResponseRequest(body.dump(), kDepthMax, "");
  EXPECT_TRUE(std::holds_alternative<ApiError>(read)) << body;
  return std::holds_alternative<ApiError>(read) ? std::get<ApiError>(read) : ApiError();
}

// An id that is none would else be an answer that has forgotten the conversation.
TEST(ResponseRequests, APreviousIdOfAnotherTypeIsRefused) {
  for (const Body& id : {Body(7), Body(true), Body::array({"resp_1"}), Body{{"id", "resp_1"}}}) {
    const ApiError error = ResponseError({{"previous_response_id", id}});
    EXPECT_EQ(error.param, "previous_response_id") << id;
    EXPECT_EQ(error.http_status, 400);
  }
  EXPECT_EQ(Response({{"previous_response_id", nullptr}}).messages.size(), 1u);
}

// An answer that was broken off while the model thought: what it thought belongs to no later one.
TEST(ResponseRequests, ReasoningThatLedToNothingIsNotThatOfALaterAnswer) {
  const auto thought = [](const char* text) {
    return Body{{"type", "reasoning"},
                {"content", Body::array({{{"type", "reasoning_text"}, {"text", text}}})}};
  };
  const Body items = {{{"role", "user"}, {"content", "One?"}},
                      thought("broken off"),
                      {{"role", "user"}, {"content", "Two?"}},
                      thought("first "),
                      thought("second"),
                      {{"role", "assistant"}, {"content", "Two."}},
                      {{"role", "user"}, {"content", "Three?"}}};
  const ResponseRequest read = Response({{"input", items}});
  const auto& messages = read.chat.generate.messages();
  ASSERT_EQ(messages.size(), 4);
  EXPECT_EQ(messages[1].content(), "Two?");
  EXPECT_EQ(messages[2].reasoning(), "first second");
}

TEST(ResponseRequests, ErrorsNameTheirOwnFields) {
  const Body long_id(std::string(300, 'x'));
  struct Row {
    Body more;
    const char* param;
  };
  for (const Row& row : {
           Row{{{"max_output_tokens", -2}}, "max_output_tokens"},
           Row{{{"max_output_tokens", "9"}}, "max_output_tokens"},
           Row{{{"temperature", 3}}, "temperature"},
           Row{{{"text", {{"format", {{"type", "xml"}}}}}}, "text.format.type"},
           Row{{{"text", {{"format", {{"type", "json_schema"}, {"schema", Body::object()}}}}}},
               "text.format.name"},
           Row{{{"text", "plain"}}, "text"},
           Row{{{"text", {{"format", "json"}}}}, "text.format.type"},
           Row{{{"tools", {{{"type", "function"}, {"name", "a b"}}}}}, "tools[0].name"},
           Row{{{"tools", {{{"type", "function"}, {"name", "a"}, {"parameters", 7}}}}},
               "tools[0].parameters"},
           Row{{{"tools", {{{"type", "namespace"}, {"name", "a"}}}}}, "tools[0].tools"},
           Row{{{"reasoning", "high"}}, "reasoning"},
           Row{{{"input", 7}}, "input"},
           Row{{{"input", Body::array({7})}}, "input[0]"},
           Row{{{"input", Body::array({Body::object()})}}, "input[0]"},
           Row{{{"input", {{{"role", "user"}}}}}, "input[0].content"},
           Row{{{"input", {{{"role", "user"}, {"content", {{{"type", "input_text"}}}}}}}},
               "input[0].content[0].text"},
           Row{{{"input", {{{"type", "function_call"}, {"name", "a"}, {"arguments", "{}"}}}}},
               "input[0].call_id"},
           Row{{{"instructions", {"a"}}}, "instructions"},
           Row{{{"stream", "yes"}}, "stream"},
           Row{{{"n", 2}}, "n"},
           Row{{{"model", 7}}, "model"},
       }) {
    const ApiError error = ResponseError(row.more);
    EXPECT_EQ(error.param, row.param) << row.more << "\n" << error.message;
    EXPECT_EQ(error.http_status, 400);
    EXPECT_NE(error.message.find(absl::StrCat("'", row.param, "'")), std::string::npos)
        << error.message;
  }
}

// --- Ollama --------------------------------------------------------------------------------------

std::string OllamaRefusal(const Body& more, bool is_chat = false) {
  Body body = {{"model", "tiny"}};
  if (is_chat) {
    body["messages"] = {{{"role", "user"}, {"content", "Hello"}}};
  } else {
    body["prompt"] = "Hello";
  }
  body.update(more);
  return is_chat ? RefusalOf(ParseOllamaChat(body.dump(), kDepthMax))
                 : RefusalOf(ParseOllamaGenerate(body.dump(), kDepthMax));
}

OllamaRequest Generate(const Body& more) {
  Body body = {{"model", "tiny"}, {"prompt", "Hello"}};
  body.update(more);
  auto read = ParseOllamaGenerate(body.dump(), kDepthMax);
  EXPECT_TRUE(std::holds_alternative<OllamaRequest>(read)) << RefusalOf(read);
  return std::holds_alternative<OllamaRequest>(read) ? std::get<OllamaRequest>(read)
                                                     : OllamaRequest();
}

// Whatever way a prompt goes, its client is told of the fields that it sent.
TEST(OllamaRequests, ErrorsNameOllamasFieldsRawOrNot) {
  struct Row {
    Body more;
    const char* words;
  };
  for (const bool is_raw : {false, true}) {
    for (const Row& row : {
             Row{{{"options", {{"num_predict", 1.5}}}}, "'options.num_predict'"},
             Row{{{"options", {{"num_predict", "9"}}}}, "'options.num_predict'"},
             Row{{{"options", {{"repeat_penalty", -1}}}}, "options.repeat_penalty"},
             Row{{{"options", {{"temperature", 9}}}}, "'temperature'"},
             Row{{{"format", {{"type", std::string(200'000, 'x')}}}}, "'format'"},
             Row{{{"prompt", 7}}, "'prompt' must be a string"},
             Row{{{"prompt", Body::array({"a", "b"})}}, "'prompt' must be a string"},
             Row{{{"model", std::string(257, 'm')}}, "'model'"},
         }) {
      Body more = row.more;
      more["raw"] = is_raw;
      const std::string message = OllamaRefusal(more);
      EXPECT_NE(message.find(row.words), std::string::npos)
          << (is_raw ? "raw: " : "") << message.substr(0, 300);
    }
  }
  EXPECT_NE(OllamaRefusal({{"raw", true}, {"system", "Brief."}}).find("'system'"),
            std::string::npos);
  EXPECT_NE(OllamaRefusal({{"raw", "yes"}}).find("'raw'"), std::string::npos);
  // Programs that are built on Ollama's own library send every field.
  const OllamaRequest empty = Generate({{"raw", true},
                                        {"system", ""},
                                        {"template", ""},
                                        {"suffix", ""},
                                        {"context", nullptr},
                                        {"images", Body::array()},
                                        {"options", nullptr}});
  EXPECT_EQ(empty.chat.generate.prompt(), "Hello");
}

// A seed above half of 64 bits is a seed; only a negative one is any.
TEST(OllamaRequests, LargeSeedsAreKept) {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1} << 63, UINT64_MAX}) {
    const OllamaRequest read = Generate({{"options", {{"seed", seed}}}});
    EXPECT_EQ(read.chat.generate.sampling().seed(), seed);
  }
  for (const int64_t seed : {int64_t{-1}, INT64_MIN}) {
    EXPECT_FALSE(Generate({{"options", {{"seed", seed}}}}).chat.generate.sampling().has_seed());
  }
  EXPECT_NE(OllamaRefusal({{"options", {{"num_predict", UINT64_MAX}}}}).find("num_predict"),
            std::string::npos)
      << "it is no number below zero";
}

TEST(OllamaRequests, WhatRawLeavesOutIsNamed) {
  const OllamaRequest read = Generate({{"raw", true},
                                       {"think", true},
                                       {"tools", {{{"type", "function"}}}},
                                       {"options", {{"num_ctx", 4096}}},
                                       {"novel", 1}});
  EXPECT_EQ(read.chat.ignored,
            (std::vector<std::string>{"novel", "options.num_ctx", "think", "tools"}));
  EXPECT_FALSE(read.chat.generate.has_tools());
}

// A request without a prompt asks for a model, so its name is all that it has.
TEST(OllamaRequests, ALoadHoldsTheNameToItsBounds) {
  const auto load = [](const Body& model) {
    return ParseOllamaGenerate(Body{{"model", model}}.dump(), kDepthMax);
  };
  EXPECT_TRUE(std::holds_alternative<OllamaRequest>(load(std::string(256, 'm'))));
  for (const Body& model :
       {Body(""), Body(":latest"), Body(std::string(257, 'm')), Body(7), Body(nullptr)}) {
    EXPECT_NE(RefusalOf(load(model)).find("'model'"), std::string::npos) << model.dump();
  }
  for (const char* keep : {"0", "\"0\"", "\"0s\"", "0.0"}) {
    const std::string body = absl::StrCat(R"({"model":"tiny","keep_alive":)", keep, "}");
    EXPECT_NE(RefusalOf(ParseOllamaGenerate(body, kDepthMax)).find("clusterctl model unload"),
              std::string::npos)
        << keep;
  }
  for (const char* keep : {"-1", "\"5m\"", "300", "null"}) {
    const std::string body = absl::StrCat(R"({"model":"tiny","keep_alive":)", keep, "}");
    const auto read = ParseOllamaGenerate(body, kDepthMax);
    ASSERT_TRUE(std::holds_alternative<OllamaRequest>(read)) << keep;
    EXPECT_TRUE(std::get<OllamaRequest>(read).is_load);
  }
}

TEST(OllamaRequests, CallsWithoutIdsMeetTheirResultsInTurn) {
  const auto call = [](const char* name) { return Body{{"function", {{"name", name}}}}; };
  const auto result = [](const char* content) {
    return Body{{"role", "tool"}, {"content", content}};
  };
  const Body turns = {
      {{"role", "user"}, {"content", "?"}},
      {{"role", "assistant"}, {"tool_calls", {call("get"), call("get"), call("now")}}},
      result("first"),
      result("second"),
      result("third"),
      result("of nobody")};
  const auto read = ParseOllamaChat(Body{{"model", "tiny"}, {"messages", turns}}.dump(), kDepthMax);
  ASSERT_TRUE(std::holds_alternative<OllamaRequest>(read)) << RefusalOf(read);
  const auto& messages = std::get<OllamaRequest>(read).chat.generate.messages();
  ASSERT_EQ(messages.size(), 6);
  const auto& calls = messages[1].tool_calls();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(messages[2 + i].tool_call_id(), calls[i].id());
    for (int j = 0; j < i; ++j) EXPECT_NE(calls[i].id(), calls[j].id());
  }
  EXPECT_EQ(messages[5].tool_call_id(), "") << "a result of no call stays without";
}

TEST(OllamaRequests, EmbeddingsNameWhatTheyLeaveOutAndWhatIsWrong) {
  const auto embed = [](const Body& body, bool is_older = false) {
    return is_older ? ParseOllamaEmbeddings(body.dump(), kDepthMax)
                    : ParseOllamaEmbed(body.dump(), kDepthMax);
  };
  const auto read = embed({{"model", "tiny:latest"},
                           {"input", "a"},
                           {"keep_alive", "5m"},
                           {"options", {{"num_ctx", 1}}},
                           {"inputs", "typed wrong"}});
  ASSERT_TRUE(std::holds_alternative<EmbeddingRequest>(read)) << RefusalOf(read);
  const EmbeddingRequest& request = std::get<EmbeddingRequest>(read);
  EXPECT_EQ(request.generate.deployment(), "tiny");
  EXPECT_EQ(request.ignored, (std::vector<std::string>{"inputs", "options.num_ctx"}));
  struct Row {
    Body more;
    bool is_older;
    const char* words;
  };
  for (const Row& row : {
           Row{{{"prompt", ""}}, true, "'prompt' is empty"},
           Row{{{"prompt", {{"a", "b"}}}}, true, "'prompt'"},
           Row{{{"input", "a"}}, true, "'prompt' is missing"},
           Row{{{"input", ""}}, false, "'input' is empty"},
           Row{{{"prompt", "a"}}, false, "'input' is missing"},
           Row{{{"input", {"a", 7}}}, false, "'input[1]'"},
           Row{{{"input", "a"}, {"options", 7}}, false, "'options'"},
           Row{{{"input", "a"}, {"options", {1, 2}}}, false, "'options'"},
           Row{{{"input", "a"}, {"truncate", "end"}}, false, "'truncate'"},
           Row{{{"input", "a"}, {"dimensions", 0}}, false, "'dimensions'"},
           Row{{{"input", "a"}, {"model", ""}}, false, "'model'"},
       }) {
    Body body = {{"model", "tiny"}};
    body.update(row.more);
    const std::string message = RefusalOf(embed(body, row.is_older));
    EXPECT_NE(message.find(row.words), std::string::npos) << body << "\n" << message;
  }
}

// --- Anthropic -----------------------------------------------------------------------------------

std::string MessagesRefusal(const Body& more) {
  Body body = {{"model", "tiny"},
               {"max_tokens", 9},
               {"messages", {{{"role", "user"}, {"content", "Hello"}}}}};
  body.update(more);
  return RefusalOf(ParseMessagesRequest(body.dump(), kDepthMax));
}

TEST(MessagesRequests, ErrorsNameAnthropicsFields) {
  const auto user = [](const Body& content) {
    return Body{{"messages", {{{"role", "user"}, {"content", content}}}}};
  };
  const auto assistant = [](const Body& content) {
    return Body{{"messages", {{{"role", "assistant"}, {"content", content}}}}};
  };
  const Body no_schema = {{"type", "json_schema"}};
  struct Row {
    Body more;
    const char* words;
  };
  for (const Row& row : {
           Row{{{"stop_sequences", Body::array({""})}}, "'stop_sequences[0]'"},
           Row{{{"stop_sequences", Body(std::vector<std::string>(17, "x"))}}, "'stop_sequences'"},
           Row{{{"max_tokens", 0}}, "'max_tokens'"},
           Row{{{"max_tokens", nullptr}}, "'max_tokens' is missing"},
           Row{{{"system", 7}}, "'system'"},
           Row{{{"system", {{{"type", "image"}}}}}, "'system[0]'"},
           Row{{{"tools", {{{"name", "a b"}, {"input_schema", Body::object()}}}}},
               "'tools[0].name'"},
           Row{{{"tools", {{{"name", "a"}}}}}, "'tools[0].input_schema'"},
           Row{{{"tools", {{{"name", "a"}, {"input_schema", "x"}}}}}, "'tools[0].input_schema'"},
           Row{{{"tools", {{{"type", "bash_20250124"}, {"name", "bash"}}}}}, "bash_20250124"},
           Row{{{"tool_choice", "any"}}, "'tool_choice'"},
           Row{{{"tool_choice", {{"type", "tool"}}}}, "'tool_choice.name'"},
           Row{{{"tool_choice", {{"type", "auto"}, {"disable_parallel_tool_use", 1}}}},
               "disable_parallel_tool_use"},
           Row{{{"thinking", true}}, "'thinking.type'"},
           Row{{{"thinking", {{"type", "enabled"}, {"budget_tokens", -5}}}}, "budget_tokens"},
           Row{{{"thinking", {{"type", "enabled"}, {"display", "loud"}}}}, "'thinking.display'"},
           Row{{{"output_config", {{"format", no_schema}}}}, "'output_config.format'"},
           Row{{{"output_format", "json"}}, "'output_config.format"},
           Row{{{"metadata", {{"user_id", 7}}}}, "'metadata.user_id'"},
           Row{user(7), "'messages[0].content'"},
           Row{user(Body::array()), "'messages[0].content'"},
           Row{user({{{"type", "text"}}}), "'messages[0].content[0].text'"},
           Row{user({7}), "'messages[0].content[0].type'"},
           Row{user({{{"type", "document"}, {"source", {{"type", "base64"}}}}}), "plain text"},
           Row{user({{{"type", "tool_result"}, {"content", "x"}}}), "tool_use_id"},
           Row{assistant({{{"type", "tool_use"}, {"id", "a"}, {"name", "b"}, {"input", "{}"}}}),
               "'messages[0].content[0].input'"},
           Row{assistant("I begin"), "the last message must be the user's"},
           Row{{{"messages", {{{"role", "narrator"}, {"content", "x"}}}}}, "'messages[0].role'"},
           Row{{{"messages",
                 Body(std::vector<Body>(kMessagesMax + 1, {{"role", "user"}, {"content", "x"}}))}},
               "at most"},
       }) {
    const std::string message = MessagesRefusal(row.more);
    EXPECT_NE(message.find(row.words), std::string::npos) << row.more.dump().substr(0, 200) << "\n"
                                                          << message;
  }
}

// Documents and errors of tools have no place of their own in a chat: they are words.
TEST(MessagesRequests, DocumentsAndFailedToolsBecomeWords) {
  const Body blocks = {
      {{"type", "tool_result"}, {"tool_use_id", "c1"}, {"content", "no file"}, {"is_error", true}},
      {{"type", "tool_result"}, {"tool_use_id", "c2"}},
      {{"type", "document"},
       {"title", "Notes"},
       {"source", {{"type", "text"}, {"media_type", "text/plain"}, {"data", "Oslo is cold."}}}},
      {{"type", "text"}, {"text", "Is it?"}}};
  const Body body = {{"model", "tiny"},
                     {"max_tokens", 9},
                     {"messages", {{{"role", "user"}, {"content", blocks}}}}};
  const auto read = ParseMessagesRequest(body.dump(), kDepthMax);
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(read)) << RefusalOf(read);
  const auto& messages = std::get<ChatRequest>(read).generate.messages();
  ASSERT_EQ(messages.size(), 3);
  EXPECT_EQ(messages[0].content(), "Error: no file");
  EXPECT_EQ(messages[1].content(), "") << "a tool may say nothing";
  EXPECT_EQ(messages[1].tool_call_id(), "c2");
  EXPECT_EQ(messages[2].content(), "Notes\n\nOslo is cold.\n\nIs it?");
}

// Clients name themselves for the queue; no name is no client of its own.
TEST(MessagesRequests, AUserIdMakesAClientAndNoneDoesNot) {
  const auto key_of = [](const Body& more) {
    Body body = {{"model", "tiny"},
                 {"max_tokens", 9},
                 {"messages", {{{"role", "user"}, {"content", "Hello"}}}}};
    body.update(more);
    const auto read = ParseMessagesRequest(body.dump(), kDepthMax);
    return std::get<ChatRequest>(read).generate.fairness_key();
  };
  const std::string nobody = key_of(Body::object());
  EXPECT_EQ(key_of({{"metadata", Body::object()}}), nobody);
  EXPECT_EQ(key_of({{"metadata", {{"user_id", nullptr}}}}), nobody);
  EXPECT_NE(key_of({{"metadata", {{"user_id", "ada"}}}}), nobody);
  EXPECT_NE(key_of({{"metadata", {{"user_id", "ada"}}}}),
            key_of({{"metadata", {{"user_id", "bob"}}}}));
}

// What is counted is what would be answered.
TEST(MessagesRequests, ACountReadsTheSamePromptAsTheAnswer) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Body messages = AnthropicMessages(ConversationMaker(seed).Make());
    const Body body = {{"model", "tiny"}, {"max_tokens", 500}, {"messages", messages}};
    const auto asked = ParseMessagesRequest(body.dump(), kDepthMax);
    const auto counted = ParseCountTokensRequest(body.dump(), kDepthMax);
    ASSERT_TRUE(std::holds_alternative<ChatRequest>(counted)) << RefusalOf(counted);
    EXPECT_EQ(Told(std::get<ChatRequest>(counted).generate),
              Told(std::get<ChatRequest>(asked).generate));
    EXPECT_TRUE(std::get<ChatRequest>(counted).generate.tokenize().count_only());
  }
}

}  // namespace
}  // namespace macrame::agentd
