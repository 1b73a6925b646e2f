#include "agentd/cores/model_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using Profiles = std::map<std::string, v1::ModelProfile>;

v1::ChangeProfileRequest Change(const std::string& model = "qwen") {
  v1::ChangeProfileRequest request;
  request.mutable_set()->set_model(model);
  return request;
}

// As it is written, and read again.
v1::ModelProfile Carry(const v1::ChangeProfileRequest& request, Profiles& profiles) {
  const auto change = DecideProfile(request, profiles);
  EXPECT_TRUE(change.ok()) << change.status();
  if (!change.ok()) return {};
  const std::string& model = request.set().model();
  if (change->value.empty()) {
    profiles.erase(model);
  } else {
    EXPECT_TRUE(profiles[model].ParseFromString(change->value));
    EXPECT_EQ(profiles[model].SerializeAsString(), change->response.profile().SerializeAsString());
  }
  return change->response.profile();
}

std::string Refusal(const v1::ChangeProfileRequest& request, const Profiles& profiles = {}) {
  const auto change = DecideProfile(request, profiles);
  EXPECT_EQ(change.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(change.status()).code(), "BAD_REQUEST");
  return std::string(change.status().message());
}

TEST(ModelProfile, ChangesAddUpAndAreTakenBackOneByOne) {
  Profiles profiles;
  v1::ChangeProfileRequest first = Change();
  first.mutable_set()->mutable_sampling()->set_temperature(0.6);
  first.mutable_set()->mutable_reasoning()->set_enabled(false);
  first.mutable_set()->set_template_arguments_json(R"({"style":"short","n":1})");
  first.mutable_set()->add_aliases("sonnet");
  Carry(first, profiles);
  v1::ChangeProfileRequest second = Change();
  second.mutable_set()->mutable_sampling()->set_top_p(0.95);
  second.mutable_set()->mutable_reasoning()->set_tokens_max(100);
  second.mutable_set()->set_template_arguments_json(R"({"n":2})");
  second.mutable_set()->add_aliases("haiku");
  second.mutable_set()->set_pinned(true);
  second.mutable_set()->set_max_tokens(512);
  second.mutable_set()->set_idle_unload_s(0);
  const v1::ModelProfile both = Carry(second, profiles);
  EXPECT_EQ(both.sampling().temperature(), 0.6);
  EXPECT_EQ(both.sampling().top_p(), 0.95);
  EXPECT_FALSE(both.reasoning().enabled());
  EXPECT_EQ(both.reasoning().tokens_max(), 100u);
  EXPECT_EQ(Json::parse(both.template_arguments_json()), Json({{"style", "short"}, {"n", 2}}));
  EXPECT_THAT(both.aliases(), ElementsAre("haiku", "sonnet"));

  v1::ChangeProfileRequest again = second;
  EXPECT_FALSE(DecideProfile(again, profiles)->response.changed()) << "it is so already";

  v1::ChangeProfileRequest less = Change();
  for (const char* field : {"temperature", "thinking", "template.style", "alias.sonnet", "pinned",
                            "idle_unload", "max_tokens"}) {
    less.add_cleared(field);
  }
  const v1::ModelProfile left = Carry(less, profiles);
  EXPECT_FALSE(left.sampling().has_temperature());
  EXPECT_EQ(left.sampling().top_p(), 0.95);
  EXPECT_FALSE(left.reasoning().has_enabled());
  EXPECT_EQ(Json::parse(left.template_arguments_json()), Json({{"n", 2}}));
  EXPECT_THAT(left.aliases(), ElementsAre("haiku"));
  EXPECT_FALSE(left.pinned());
  EXPECT_FALSE(left.has_idle_unload_s());
  EXPECT_EQ(left.max_tokens(), 0u);

  v1::ChangeProfileRequest rest = Change();
  for (const char* field : {"top_p", "thinking_tokens", "template.n", "aliases"}) {
    rest.add_cleared(field);
  }
  Carry(rest, profiles);
  EXPECT_TRUE(profiles.empty()) << "a profile without anything in it is none";
}

// With a value in each field.
v1::ModelProfile Full() {
  v1::ModelProfile profile;
  profile.set_model("qwen");
  v1::Sampling& sampling = *profile.mutable_sampling();
  sampling.set_temperature(0.6);
  sampling.set_top_p(0.9);
  sampling.set_top_k(20);
  sampling.set_min_p(0.1);
  sampling.set_typical_p(0.9);
  sampling.set_repetition_penalty(1.1);
  sampling.set_presence_penalty(0.5);
  sampling.set_frequency_penalty(0.5);
  profile.mutable_reasoning()->set_enabled(true);
  profile.mutable_reasoning()->set_tokens_max(100);
  profile.set_max_tokens(512);
  profile.set_idle_unload_s(60);
  profile.set_pinned(true);
  profile.add_aliases("sonnet");
  return profile;
}

TEST(ModelProfile, EachFieldThatCanBeSetCanBeCleared) {
  Profiles full = {{"qwen", Full()}};
  for (const absl::string_view field : kProfileFields) {
    v1::ChangeProfileRequest request = Change();
    request.add_cleared(std::string(field));
    const auto change = DecideProfile(request, full);
    ASSERT_TRUE(change.ok()) << field << ": " << change.status();
    EXPECT_TRUE(change->response.changed()) << field;
    EXPECT_LT(change->value.size(), Full().ByteSizeLong()) << field;
    Carry(request, full);
  }
  EXPECT_TRUE(full.empty()) << "nothing is left of it";
  v1::ChangeProfileRequest all = Change();
  all.mutable_set()->mutable_sampling()->set_min_p(0.1);
  Profiles profiles;
  Carry(all, profiles);
  v1::ChangeProfileRequest anew = Change();
  anew.set_clear_all(true);
  anew.mutable_set()->set_max_tokens(9);
  const v1::ModelProfile profile = Carry(anew, profiles);
  EXPECT_FALSE(profile.has_sampling());
  EXPECT_EQ(profile.max_tokens(), 9u);
}

TEST(ModelProfile, WhatCannotBeIsRefused) {
  v1::ChangeProfileRequest hot = Change();
  hot.mutable_set()->mutable_sampling()->set_temperature(2.5);
  EXPECT_THAT(Refusal(hot), HasSubstr("temperature is 2.5"));
  v1::ChangeProfileRequest seeded = Change();
  seeded.mutable_set()->mutable_sampling()->set_seed(1);
  EXPECT_THAT(Refusal(seeded), HasSubstr("a request's own"));
  for (const char* text : {"[1]", "{", "7"}) {
    v1::ChangeProfileRequest bad = Change();
    bad.mutable_set()->set_template_arguments_json(text);
    EXPECT_THAT(Refusal(bad), HasSubstr("JSON object")) << text;
  }
  v1::ChangeProfileRequest large = Change();
  large.mutable_set()->set_template_arguments_json(
      Json({{"text", std::string(kTemplateArgumentsBytesMax, 'x')}}).dump());
  EXPECT_THAT(Refusal(large), HasSubstr("bytes"));
  for (const char* field : {"seed", "logit_bias", "temprature", ""}) {
    v1::ChangeProfileRequest unknown = Change();
    unknown.add_cleared(field);
    EXPECT_THAT(Refusal(unknown), HasSubstr("temperature, top_p")) << field;
  }
  for (const std::string& alias :
       {std::string(), std::string("qwen"), std::string("a\nb"), std::string("claude-*"),
        std::string("x#2"), std::string(kAliasBytesMax + 1, 'a')}) {
    v1::ChangeProfileRequest bad = Change();
    bad.mutable_set()->add_aliases(alias);
    EXPECT_THAT(Refusal(bad), HasSubstr("no alias")) << alias;
  }
  v1::ChangeProfileRequest many = Change();
  for (int i = 0; i <= kAliasesMax; ++i) many.mutable_set()->add_aliases("a" + std::to_string(i));
  EXPECT_THAT(Refusal(many), HasSubstr("at most 16"));
  EXPECT_THAT(Refusal(Change("")), HasSubstr("name"));
}

TEST(ModelProfile, AnAliasIsOneModels) {
  Profiles profiles;
  v1::ChangeProfileRequest first = Change("qwen");
  first.mutable_set()->add_aliases("sonnet");
  Carry(first, profiles);
  v1::ChangeProfileRequest other = Change("llama");
  other.mutable_set()->add_aliases("sonnet");
  EXPECT_THAT(Refusal(other, profiles), HasSubstr("alias of 'qwen'"));
  v1::ChangeProfileRequest given = Change("qwen");
  given.add_cleared("alias.sonnet");
  Carry(given, profiles);
  Carry(other, profiles);
  EXPECT_EQ(AliasesOf(profiles), (std::map<std::string, std::string>{{"sonnet", "llama"}}));
}

v1::ModelProfile Sample() {
  v1::ModelProfile profile;
  profile.set_model("qwen");
  profile.mutable_sampling()->set_temperature(0.6);
  profile.mutable_sampling()->set_top_k(20);
  profile.mutable_reasoning()->set_enabled(false);
  profile.set_template_arguments_json(R"({"style":"short","n":1})");
  profile.set_max_tokens(512);
  return profile;
}

TEST(ModelProfile, ARequestThatSaysNothingGetsAllOfIt) {
  v1::GenerateRequest request;
  request.add_messages()->set_content("hi");
  ApplyProfile(Sample(), &request);
  EXPECT_EQ(request.sampling().temperature(), 0.6);
  EXPECT_EQ(request.sampling().top_k(), 20u);
  EXPECT_TRUE(request.reasoning().has_enabled());
  EXPECT_FALSE(request.reasoning().enabled());
  EXPECT_EQ(Json::parse(request.template_arguments_json()), Json({{"style", "short"}, {"n", 1}}));
  EXPECT_EQ(request.max_tokens(), 512u);
}

TEST(ModelProfile, WhatARequestSaysItselfStays) {
  v1::GenerateRequest request;
  request.add_messages()->set_content("hi");
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_seed(7);
  request.mutable_reasoning()->set_enabled(true);
  request.set_template_arguments_json(R"({"n":2})");
  request.set_max_tokens(4);
  ApplyProfile(Sample(), &request);
  EXPECT_EQ(request.sampling().temperature(), 0);
  EXPECT_EQ(request.sampling().seed(), 7u);
  EXPECT_EQ(request.sampling().top_k(), 20u) << "of this it said nothing";
  EXPECT_TRUE(request.reasoning().enabled());
  EXPECT_EQ(Json::parse(request.template_arguments_json()), Json({{"style", "short"}, {"n", 2}}));
  EXPECT_EQ(request.max_tokens(), 4u);
}

// The switch has several names, of which templates follow one: no other may turn it back.
TEST(ModelProfile, ARequestsOwnWordOnThinkingIsNotTurnedBack) {
  v1::ModelProfile profile = Sample();
  profile.set_template_arguments_json(R"({"enable_thinking":false,"style":"short"})");
  v1::GenerateRequest by_switch;
  by_switch.add_messages()->set_content("hi");
  by_switch.mutable_reasoning()->set_enabled(true);
  ApplyProfile(profile, &by_switch);
  EXPECT_EQ(Json::parse(by_switch.template_arguments_json()), Json({{"style", "short"}}));
  EXPECT_TRUE(by_switch.reasoning().enabled());
  for (const char* own : {R"({"thinking":true})", R"({"reasoning_effort":"high"})"}) {
    v1::GenerateRequest by_variable;
    by_variable.add_messages()->set_content("hi");
    by_variable.set_template_arguments_json(own);
    ApplyProfile(profile, &by_variable);
    Json wanted = Json::parse(own);
    wanted["style"] = "short";
    EXPECT_EQ(Json::parse(by_variable.template_arguments_json()), wanted);
    EXPECT_FALSE(by_variable.reasoning().has_enabled()) << own;
  }
}

TEST(ModelProfile, TheLongestAnswerIsNoShorterThanARequestsLeast) {
  v1::GenerateRequest request;
  request.set_prompt("once");
  request.set_min_tokens(600);
  ApplyProfile(Sample(), &request);
  EXPECT_EQ(request.max_tokens(), 600u);
}

TEST(ModelProfile, LargeVariablesOfARequestStayAsTheyAre) {
  v1::GenerateRequest request;
  request.add_messages()->set_content("hi");
  const std::string large = Json({{"text", std::string(kOwnArgumentsBytesMax, 'x')}}).dump();
  request.set_template_arguments_json(large);
  ApplyProfile(Sample(), &request);
  EXPECT_EQ(request.template_arguments_json(), large);
  EXPECT_FALSE(request.reasoning().has_enabled()) << "they may say so";
  EXPECT_EQ(request.max_tokens(), 512u);
}

TEST(ModelProfile, OnlyWhatMattersIsPutIntoARequest) {
  v1::GenerateRequest embedding;
  embedding.mutable_embedding();
  const std::string before = embedding.SerializeAsString();
  ApplyProfile(Sample(), &embedding);
  EXPECT_EQ(embedding.SerializeAsString(), before);
  v1::GenerateRequest counted;
  counted.add_messages()->set_content("hi");
  counted.mutable_tokenize()->set_count_only(true);
  ApplyProfile(Sample(), &counted);
  EXPECT_FALSE(counted.template_arguments_json().empty()) << "its prompt is made like a chat's";
  EXPECT_FALSE(counted.has_sampling());
  EXPECT_EQ(counted.max_tokens(), 0u);
  v1::GenerateRequest text;
  text.set_prompt("once upon a time");
  ApplyProfile(Sample(), &text);
  EXPECT_TRUE(text.template_arguments_json().empty()) << "no template makes its prompt";
  EXPECT_EQ(text.sampling().temperature(), 0.6);
  // What is no object is refused where the prompt is made, and named there.
  v1::GenerateRequest broken;
  broken.add_messages()->set_content("hi");
  broken.set_template_arguments_json("[]");
  ApplyProfile(Sample(), &broken);
  EXPECT_EQ(broken.template_arguments_json(), "[]");
}

}  // namespace
}  // namespace macrame::agentd
