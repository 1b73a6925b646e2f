#include "agentd/gateway/fields/sampling_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "agentd/gateway/dialects/chat_request.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

std::variant<ChatRequest, ApiError> Parse(const json& fields) {
  json body = {{"model", "tiny"}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}};
  body.update(fields);
  return ParseChatRequest(body.dump(), 32);
}

ChatRequest Accepted(const json& fields) {
  auto parsed = Parse(fields);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << error->message << " for " << fields.dump();
    return {};
  }
  EXPECT_TRUE(std::get<ChatRequest>(parsed).ignored.empty()) << fields.dump();
  return std::get<ChatRequest>(std::move(parsed));
}

// The field at fault; empty when all were taken.
std::string Refused(const json& fields) {
  auto parsed = Parse(fields);
  const auto* error = std::get_if<ApiError>(&parsed);
  if (error == nullptr) return "";
  EXPECT_EQ(error->http_status, 400);
  EXPECT_FALSE(error->message.empty());
  return error->param;
}

TEST(SamplingFields, UnsetOnesAreLeftToTheModel) {
  const ChatRequest request = Accepted(json::object());
  const v1::Sampling& sampling = request.generate.sampling();
  EXPECT_FALSE(sampling.has_repetition_penalty());
  EXPECT_FALSE(sampling.has_presence_penalty());
  EXPECT_FALSE(sampling.has_frequency_penalty());
  EXPECT_FALSE(sampling.has_typical_p());
  EXPECT_TRUE(sampling.logit_bias().empty());
  EXPECT_FALSE(request.generate.has_top_logprobs());
  EXPECT_FALSE(request.generate.ignore_eos());
  EXPECT_EQ(request.generate.min_tokens(), 0u);
  EXPECT_EQ(request.choices, 1u);
}

TEST(SamplingFields, AreTakenOver) {
  const v1::GenerateRequest request = Accepted({{"presence_penalty", -2},
                                                {"frequency_penalty", 0.5},
                                                {"repetition_penalty", 1.1},
                                                {"typical_p", 0.9},
                                                {"logit_bias", {{"7", -100}, {"4000", 2.5}}},
                                                {"min_tokens", 3},
                                                {"max_tokens", 3},
                                                {"stop_token_ids", {1, 2}},
                                                {"ignore_eos", true},
                                                {"logprobs", true},
                                                {"top_logprobs", 20}})
                                          .generate;
  EXPECT_EQ(request.sampling().presence_penalty(), -2);
  EXPECT_EQ(request.sampling().frequency_penalty(), 0.5);
  EXPECT_EQ(request.sampling().repetition_penalty(), 1.1);
  EXPECT_EQ(request.sampling().typical_p(), 0.9);
  ASSERT_EQ(request.sampling().logit_bias().size(), 2u);
  EXPECT_EQ(request.sampling().logit_bias().at(7), -100.0F);
  EXPECT_EQ(request.sampling().logit_bias().at(4000), 2.5F);
  EXPECT_EQ(request.min_tokens(), 3u);
  ASSERT_EQ(request.stop_token_ids_size(), 2);
  EXPECT_EQ(request.stop_token_ids(1), 2);
  EXPECT_TRUE(request.ignore_eos());
  EXPECT_TRUE(request.has_top_logprobs());
  EXPECT_EQ(request.top_logprobs(), 20u);
  const v1::GenerateRequest plain = Accepted({{"logprobs", true}}).generate;
  EXPECT_TRUE(plain.has_top_logprobs());
  EXPECT_EQ(plain.top_logprobs(), 0u);
}

// As Lua and some JSON libraries write them.
TEST(SamplingFields, WholeNumbersMayBeWrittenAsFloats) {
  const ChatRequest request = Accepted({{"top_k", 40.0},
                                        {"seed", -42.0},
                                        {"min_tokens", 2.0},
                                        {"max_tokens", 256.0},
                                        {"stop_token_ids", {7.0}},
                                        {"logprobs", true},
                                        {"top_logprobs", 3.0},
                                        {"thinking_budget", 64.0},
                                        {"n", 2.0}});
  const v1::GenerateRequest& generate = request.generate;
  EXPECT_EQ(generate.sampling().top_k(), 40u);
  EXPECT_EQ(generate.sampling().seed(), static_cast<uint64_t>(int64_t{-42}));
  EXPECT_EQ(generate.min_tokens(), 2u);
  EXPECT_EQ(generate.max_tokens(), 256u);
  EXPECT_EQ(generate.stop_token_ids(0), 7);
  EXPECT_EQ(generate.top_logprobs(), 3u);
  EXPECT_EQ(generate.reasoning().tokens_max(), 64u);
  EXPECT_EQ(request.choices, 2u);
  EXPECT_EQ(Accepted({{"max_tokens", -1.0}}).generate.max_tokens(), 0u);
  for (const char* name : {"seed", "top_k", "max_tokens", "n", "min_tokens", "thinking_budget"}) {
    EXPECT_EQ(Refused({{name, 1.5}}), name);
    EXPECT_EQ(Refused({{name, 1e300}}), name);
  }
  EXPECT_EQ(Refused({{"seed", 36'028'797'018'963'968.0}}), "seed") << "beyond 2^53";
  EXPECT_EQ(Refused({{"stop_token_ids", {-7.0}}}), "stop_token_ids[0]");
}

TEST(SamplingFields, AreHeldToTheirRanges) {
  for (const char* name : {"presence_penalty", "frequency_penalty"}) {
    for (const json& value : {json(2.1), json(-2.1), json("1"), json(1e300)}) {
      EXPECT_EQ(Refused({{name, value}}), name) << value;
    }
  }
  EXPECT_EQ(Refused({{"repetition_penalty", 0}}), "repetition_penalty");
  EXPECT_EQ(Refused({{"repetition_penalty", 101}}), "repetition_penalty");
  EXPECT_EQ(Refused({{"typical_p", 1.1}}), "typical_p");
  EXPECT_EQ(Refused({{"min_tokens", -1}}), "min_tokens");
  EXPECT_EQ(Refused({{"min_tokens", 4}, {"max_tokens", 3}}), "min_tokens");
  EXPECT_EQ(Refused({{"ignore_eos", 1}}), "ignore_eos");
  EXPECT_EQ(Refused({{"logprobs", 5}}), "logprobs");
  EXPECT_EQ(Refused({{"top_logprobs", 5}}), "top_logprobs") << "without logprobs";
  EXPECT_EQ(Refused({{"logprobs", true}, {"top_logprobs", 21}}), "top_logprobs");
  EXPECT_EQ(Refused({{"logprobs", true}, {"top_logprobs", -1}}), "top_logprobs");
  EXPECT_EQ(Refused({{"n", 8}}), "");
  EXPECT_EQ(Refused({{"n", 9}}), "n");
}

TEST(SamplingFields, BiasesAreNumbersByTokenId) {
  EXPECT_EQ(Refused({{"logit_bias", json::array()}}), "logit_bias");
  for (const char* key : {"-1", "x", "1.5", "05", "+5", " 5", "", "2147483648"}) {
    EXPECT_EQ(Refused({{"logit_bias", {{key, 1}}}}), "logit_bias") << key;
  }
  for (const json& value : {json(100.5), json(-101), json("1"), json(), json(true)}) {
    EXPECT_EQ(Refused({{"logit_bias", {{"5", value}}}}), "logit_bias") << value;
  }
  json many = json::object();
  for (int i = 0; i < 1024; ++i) many[std::to_string(i)] = 1;
  EXPECT_EQ(Refused({{"logit_bias", many}}), "");
  many["1024"] = 1;
  EXPECT_EQ(Refused({{"logit_bias", many}}), "logit_bias");
}

TEST(SamplingFields, StopTokensAreIds) {
  EXPECT_EQ(Refused({{"stop_token_ids", 5}}), "stop_token_ids");
  EXPECT_EQ(Refused({{"stop_token_ids", {1, -1}}}), "stop_token_ids[1]");
  EXPECT_EQ(Refused({{"stop_token_ids", json::array({1.5})}}), "stop_token_ids[0]");
  EXPECT_EQ(Refused({{"stop_token_ids", json::array({uint64_t{1} << 31})}}), "stop_token_ids[0]");
  EXPECT_EQ(Refused({{"stop_token_ids", std::vector<int>(128, 1)}}), "");
  EXPECT_EQ(Refused({{"stop_token_ids", std::vector<int>(129, 1)}}), "stop_token_ids");
}

TEST(SamplingFields, ChoicesDifferInTheirSeedOnly) {
  ChatRequest chat = Accepted({{"n", 8}, {"seed", 5}});
  EXPECT_EQ(chat.choices, 8u);
  chat.generate.set_request_id("req");
  const auto requests = RequestsOfChoices(chat.generate, chat.choices);
  ASSERT_EQ(requests.size(), 8u);
  EXPECT_EQ(requests[0].SerializeAsString(), chat.generate.SerializeAsString());
  std::set<uint64_t> seeds;
  std::set<std::string> ids;
  for (v1::GenerateRequest request : requests) {
    seeds.insert(request.sampling().seed());
    ids.insert(request.request_id());
    request.mutable_sampling()->set_seed(5);
    request.set_request_id("req");
    EXPECT_EQ(request.SerializeAsString(), chat.generate.SerializeAsString());
  }
  EXPECT_EQ(seeds.size(), 8u);
  EXPECT_EQ(ids.size(), 8u);
  EXPECT_EQ(RequestsOfChoices(chat.generate, 8)[3].sampling().seed(), requests[3].sampling().seed())
      << "the same again";
  for (const auto& request : RequestsOfChoices(Accepted({{"n", 3}}).generate, 3)) {
    EXPECT_FALSE(request.sampling().has_seed());
  }
}

}  // namespace
}  // namespace macrame::agentd
