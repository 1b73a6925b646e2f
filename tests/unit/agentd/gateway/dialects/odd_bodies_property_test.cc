// Bodies whose members have other types and sizes than they should, through the readers of all
// paths: each is taken within bounds, or refused with words, and none ends the agent.

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/dialects/chat_request.h"
#include "agentd/gateway/dialects/dialect.h"
#include "agentd/gateway/dialects/embedding_request.h"
#include "agentd/gateway/dialects/messages_request.h"
#include "agentd/gateway/dialects/ollama_request.h"
#include "agentd/gateway/dialects/response_request.h"
#include "agentd/gateway/dialects/text_request.h"
#include "agentd/gateway/dialects/token_request.h"
#include "agentd/gateway/endpoints/order_request.h"
#include "agentd/gateway/fields/sampling_fields.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

constexpr size_t kDepthMax = 24;

// What is read of any body: a request, or why not. Orders have neither.
struct Outcome {
  std::optional<ApiError> error;
  std::optional<v1::GenerateRequest> generate;
  std::vector<std::string> ignored;
};

const AnswerRequest& AnswerOf(const ChatRequest& request) { return request; }
const AnswerRequest& AnswerOf(const TextRequest& request) { return request; }
const AnswerRequest& AnswerOf(const EmbeddingRequest& request) { return request; }
const AnswerRequest& AnswerOf(const OllamaRequest& request) { return request.chat; }
const AnswerRequest& AnswerOf(const ResponseRequest& request) { return request.chat; }

template <typename Request>
Outcome OutcomeOf(const std::variant<Request, ApiError>& read) {
  if (const auto* error = std::get_if<ApiError>(&read)) return {*error, std::nullopt, {}};
  const AnswerRequest& answer = AnswerOf(std::get<Request>(read));
  return {std::nullopt, answer.generate, answer.ignored};
}

Outcome OrderOf(OrderKind kind, const std::string& body) {
  const auto read = ParseOrder(kind, body, kDepthMax, Principal(), {}, 1'790'000'000'000);
  const auto* error = std::get_if<ApiError>(&read);
  return {error == nullptr ? std::nullopt : std::optional(*error), std::nullopt, {}};
}

struct Path {
  const char* name;
  const char* sample;  // that is taken
  std::function<Outcome(const std::string& body)> read;
};

constexpr char kChat[] = R"({"model":"tiny","messages":[{"role":"system","content":"s"},
  {"role":"user","content":[{"type":"text","text":"a"}]},
  {"role":"assistant","content":"","reasoning_content":"r","tool_calls":[{"id":"c",
   "type":"function","function":{"name":"get","arguments":"{}"}}]},
  {"role":"tool","tool_call_id":"c","content":"7"},{"role":"user","content":"b"}],
  "tools":[{"type":"function","function":{"name":"get","description":"d","strict":true,
   "parameters":{"type":"object","properties":{}}}}],"tool_choice":"auto","temperature":0.5,
  "top_p":0.9,"top_k":4,"seed":7,"stop":["x"],"logit_bias":{"5":1},"logprobs":true,
  "top_logprobs":2,"n":2,"stream":true,"stream_options":{"include_usage":true},"max_tokens":9,
  "chat_template_kwargs":{"a":1},"reasoning_effort":"low","reasoning":{"max_tokens":5},
  "user":"u","cache_salt":"s","stop_token_ids":[1],"ignore_eos":false})";
constexpr char kText[] = R"({"model":"tiny","prompt":["a",[1,2]],"max_tokens":4,"logprobs":2,
  "structured_outputs":{"choice":["a","b"]},"n":2,"suffix":"","echo":false})";
constexpr char kEmbedding[] = R"({"model":"tiny","input":["a",[1,2]],"dimensions":4,
  "encoding_format":"float","user":"u"})";
constexpr char kMessages[] = R"({"model":"tiny","max_tokens":9,"system":[{"type":"text","text":"s",
   "cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"a"},
  {"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"b"},
   {"type":"tool_use","id":"c","name":"get","input":{"q":1}}]},
  {"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text",
   "text":"7"}],"is_error":false},{"type":"document","title":"d","source":{"type":"text",
   "data":"x"}},{"type":"text","text":"e"}]}],
  "tools":[{"name":"get","description":"d","input_schema":{"type":"object"},"strict":true}],
  "tool_choice":{"type":"auto","disable_parallel_tool_use":true},
  "thinking":{"type":"enabled","budget_tokens":100,"display":"summarized"},
  "stop_sequences":["x"],"temperature":1,"metadata":{"user_id":"u"},
  "output_config":{"effort":"low"}})";
constexpr char kResponse[] = R"({"model":"tiny","instructions":"i","input":[
  {"role":"user","content":[{"type":"input_text","text":"a"}]},
  {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"t"}]},
  {"type":"function_call","call_id":"c","namespace":"crm","name":"get","arguments":"{}"},
  {"type":"function_call_output","call_id":"c","output":"7"}],
  "tools":[{"type":"namespace","name":"crm","description":"d","tools":[{"type":"function",
   "name":"get","parameters":{"type":"object"}}]}],"tool_choice":{"type":"allowed_tools",
   "mode":"auto","tools":[{"type":"function","name":"crm__get"}]},
  "reasoning":{"effort":"low","summary":"auto"},"text":{"format":{"type":"text"},
   "verbosity":"low"},"include":["reasoning.encrypted_content"],"store":false,
  "max_output_tokens":9,"metadata":{"a":"b"},"previous_response_id":null,"truncation":"disabled"})";
constexpr char kOllamaChat[] = R"({"model":"tiny","messages":[{"role":"user","content":"a"},
  {"role":"assistant","thinking":"t","tool_calls":[{"function":{"name":"get",
   "arguments":{"q":1}}}]},{"role":"tool","tool_name":"get","content":"7"}],
  "tools":[{"type":"function","function":{"name":"get","parameters":{"type":"object"}}}],
  "options":{"temperature":0.5,"num_predict":5,"seed":7,"stop":["x"],"num_ctx":8,"mirostat":0},
  "stream":false,"think":true,"format":"","keep_alive":"5m"})";
constexpr char kOllamaText[] = R"({"model":"tiny","prompt":"a","system":"","raw":true,
  "options":{"num_predict":5},"format":{"type":"object"},"context":[],"images":[],"suffix":""})";
constexpr char kTokenize[] = R"({"model":"tiny","messages":[{"role":"user","content":"a"}],
  "add_generation_prompt":true,"add_special_tokens":false,"return_token_strs":false})";

const std::vector<Path>& Paths() {
  static const std::vector<Path> paths = {
      {"chat", kChat, [](const auto& b) { return OutcomeOf(ParseChatRequest(b, kDepthMax)); }},
      {"text", kText, [](const auto& b) { return OutcomeOf(ParseTextRequest(b, kDepthMax)); }},
      {"embedding", kEmbedding,
       [](const auto& b) { return OutcomeOf(ParseEmbeddingRequest(b, kDepthMax)); }},
      {"messages", kMessages,
       [](const auto& b) { return OutcomeOf(ParseMessagesRequest(b, kDepthMax)); }},
      {"count", kMessages,
       [](const auto& b) { return OutcomeOf(ParseCountTokensRequest(b, kDepthMax)); }},
      {"response", kResponse,
       [](const auto& b) { return OutcomeOf(ParseResponseRequest(b, kDepthMax, "")); }},
      {"ollama chat", kOllamaChat,
       [](const auto& b) { return OutcomeOf(ParseOllamaChat(b, kDepthMax)); }},
      {"ollama generate", kOllamaText,
       [](const auto& b) { return OutcomeOf(ParseOllamaGenerate(b, kDepthMax)); }},
      {"ollama embed", R"({"model":"tiny","input":["a"],"options":{"num_ctx":1},"truncate":false})",
       [](const auto& b) { return OutcomeOf(ParseOllamaEmbed(b, kDepthMax)); }},
      {"ollama embeddings", R"({"model":"tiny","prompt":"a","options":{}})",
       [](const auto& b) { return OutcomeOf(ParseOllamaEmbeddings(b, kDepthMax)); }},
      {"tokenize", kTokenize,
       [](const auto& b) { return OutcomeOf(ParseTokenizeRequest(b, kDepthMax)); }},
      {"detokenize", R"({"model":"tiny","tokens":[1,2,3]})",
       [](const auto& b) { return OutcomeOf(ParseDetokenizeRequest(b, kDepthMax)); }},
      {"load", R"({"model":"tiny","ranks":2,"context_length":512,"parallelism":"auto"})",
       [](const auto& b) { return OrderOf(OrderKind::kLoad, b); }},
      {"cordon", R"({"node":"a","order":"drain"})",
       [](const auto& b) { return OrderOf(OrderKind::kCordon, b); }},
      {"create key", R"({"name":"a","scopes":["infer"],"expires_in_seconds":60})",
       [](const auto& b) { return OrderOf(OrderKind::kCreateKey, b); }},
  };
  return paths;
}

json OddValue(std::mt19937_64& random) {
  switch (random() % 16) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return json::array();
    case 3:
      return json::object();
    case 4:
      return -1;
    case 5:
      return UINT64_MAX;
    case 6:
      return INT64_MIN;
    case 7:
      return 1e308;
    case 8:
      return 0.5;
    case 9:
      return "";
    case 10:
      return std::string(3'000, 'x');
    case 11:
      return std::string("a\r\nb\0c", 6);
    case 12:
      return json::array({nullptr, 7, "a", json::array(), json::object()});
    case 13:
      return json{{"type", json::array({"function"})}, {"name", 7}, {"", nullptr}};
    case 14:
      return json{{"type", "text"}, {"text", "日本\xf0\x9f\x98\x80"}};
    default:
      return json::array({"a", std::vector<int>(2'000, 1)});
  }
}

// Any value within it, itself among them.
json* SomePlace(json& value, std::mt19937_64& random) {
  if (!value.is_structured() || value.empty() || random() % 5 == 0) return &value;
  auto at = value.begin();
  std::advance(at, static_cast<long>(random() % value.size()));
  return SomePlace(*at, random);
}

void Change(json& body, std::mt19937_64& random) {
  json* place = SomePlace(body, random);
  if (place == &body) {
    // Another member; at times one with a name that no header may hold.
    const char* const names[] = {"novel",  "a\r\nb: c",      "", "日本", "tools",
                                 "stream", "response_format"};
    body[names[random() % std::size(names)]] = OddValue(random);
    return;
  }
  if (place->is_structured() && !place->empty() && random() % 3 == 0) {
    place->erase(place->begin());
  } else if (place->is_array() && random() % 2 == 0) {
    place->push_back(OddValue(random));
  } else if (place->is_object() && random() % 2 == 0) {
    (*place)[random() % 2 == 0 ? "type" : "content"] = OddValue(random);
  } else {
    *place = OddValue(random);
  }
}

void ExpectWithinBounds(const Outcome& outcome) {
  EXPECT_LE(outcome.ignored.size(), 2 * kIgnoredNamesMax);
  for (const std::string& name : outcome.ignored) {
    EXPECT_LE(name.size(), 64u);
    for (const unsigned char c : name) {
      EXPECT_TRUE(absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-') << name;
    }
  }
  if (!outcome.generate.has_value()) return;
  const v1::GenerateRequest& generate = *outcome.generate;
  EXPECT_FALSE(generate.deployment().empty());
  EXPECT_LE(generate.deployment().size(), kModelNameBytesMax);
  EXPECT_LE(static_cast<size_t>(generate.stop_size()), kStopStringsMax);
  EXPECT_LE(generate.top_logprobs(), kTopLogprobsMax);
  for (const v1::ChatMessage& message : generate.messages()) {
    static const std::set<std::string> kRoles = {"system", "user", "assistant", "tool"};
    EXPECT_TRUE(kRoles.contains(message.role())) << message.role();
    for (const v1::ToolCall& call : message.tool_calls()) EXPECT_FALSE(call.name().empty());
  }
  // What templates and samplers read is what they expect, whatever was sent.
  if (!generate.template_arguments_json().empty()) {
    EXPECT_TRUE(json::parse(generate.template_arguments_json()).is_object());
  }
  if (generate.has_tools()) {
    const json tools = json::parse(generate.tools().tools_json());
    ASSERT_TRUE(tools.is_array());
    EXPECT_FALSE(tools.empty());
    for (const json& tool : tools) {
      EXPECT_TRUE(tool["function"]["name"].is_string());
      EXPECT_TRUE(tool["function"]["parameters"].is_object());
      EXPECT_TRUE(tool["function"]["description"].is_string());
    }
  }
  const v1::Sampling& sampling = generate.sampling();
  EXPECT_TRUE(sampling.temperature() >= 0 && sampling.temperature() <= 2);
  EXPECT_TRUE(sampling.top_p() >= 0 && sampling.top_p() <= 1);
  EXPECT_LE(static_cast<size_t>(sampling.logit_bias_size()), kLogitBiasesMax);
}

void ExpectTold(const ApiError& error) {
  EXPECT_TRUE(error.http_status >= 400 && error.http_status < 500) << error.http_status;
  EXPECT_FALSE(error.message.empty());
  EXPECT_LT(error.message.size(), 600u) << "a client's own text comes back in part alone";
  EXPECT_LT(error.param.size(), 400u);
  for (const Dialect dialect : {Dialect::kOpenAi, Dialect::kAnthropic, Dialect::kOllama}) {
    const json body = json::parse(DialectErrorBody(dialect, error, "req_1"), nullptr, false);
    ASSERT_FALSE(body.is_discarded());
    EXPECT_TRUE(body.contains("error"));
  }
}

TEST(OddBodies, TheSamplesAreTaken) {
  for (const Path& path : Paths()) {
    const Outcome outcome = path.read(path.sample);
    EXPECT_FALSE(outcome.error.has_value()) << path.name << ": " << outcome.error->message;
    ExpectWithinBounds(outcome);
  }
}

TEST(OddBodies, MembersOfAnyTypeAreTakenWithinBoundsOrRefusedWithWords) {
  int taken = 0;
  for (const Path& path : Paths()) {
    int refused = 0;
    for (uint64_t seed = 1; seed <= 400; ++seed) {
      SCOPED_TRACE(absl::StrCat(path.name, ", seed ", seed));
      std::mt19937_64 random(seed);
      json body = json::parse(path.sample);
      for (uint64_t i = 1 + random() % 3; i > 0; --i) Change(body, random);
      const std::string text = body.dump(-1, ' ', false, json::error_handler_t::replace);
      const Outcome outcome = path.read(text);
      if (outcome.error.has_value()) {
        ++refused;
        ExpectTold(*outcome.error);
      } else {
        ++taken;
        ExpectWithinBounds(outcome);
      }
      if (HasFailure()) {
        ADD_FAILURE() << text.substr(0, 3'000);
        return;
      }
    }
    EXPECT_GT(refused, 50) << path.name;
  }
  EXPECT_GT(taken, 600);
}

// Whatever is no object is refused alike on every path.
TEST(OddBodies, WhatIsNoObjectIsRefusedOnEveryPath) {
  for (const Path& path : Paths()) {
    for (const char* body : {"", "null", "7", "\"text\"", "[]", "[{}]", "{", "{}{}", "\xff",
                             "{\"model\":\"\xff\"}", "{\"model\":\"\\ud80\"}"}) {
      const Outcome outcome = path.read(body);
      ASSERT_TRUE(outcome.error.has_value()) << path.name << " took " << body;
      ExpectTold(*outcome.error);
    }
    const std::string deep =
        absl::StrCat("{\"a\":", std::string(kDepthMax, '['), std::string(kDepthMax, ']'), "}");
    ASSERT_TRUE(path.read(deep).error.has_value());
    EXPECT_EQ(path.read(deep).error->code, "json_too_deep") << path.name;
  }
}

// A field without a value is as if it were not there: clients write null for what they leave out.
TEST(OddBodies, NullIsAsIfItWereLeftOut) {
  for (const Path& path : Paths()) {
    const json sample = json::parse(path.sample);
    for (const auto& [name, value] : sample.items()) {
      json without = sample, empty = sample;
      without.erase(name);
      empty[name] = nullptr;
      const Outcome left_out = path.read(without.dump());
      const Outcome null = path.read(empty.dump());
      ASSERT_EQ(null.error.has_value(), left_out.error.has_value()) << path.name << ", " << name;
      if (null.error.has_value()) {
        EXPECT_EQ(null.error->message, left_out.error->message);
      } else if (null.generate.has_value()) {
        EXPECT_EQ(null.generate->SerializeAsString(), left_out.generate->SerializeAsString())
            << path.name << ", " << name;
      }
    }
  }
}

}  // namespace
}  // namespace macrame::agentd
