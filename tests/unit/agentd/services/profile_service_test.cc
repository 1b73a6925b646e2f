#include "agentd/services/profile_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using sim::CodeOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::ChangeProfileRequest Profile(const std::string& model) {
  v1::ChangeProfileRequest request;
  request.mutable_set()->set_model(model);
  return request;
}

v1::ChangeProfileRequest Alias(const std::string& model, const std::string& alias) {
  v1::ChangeProfileRequest request = Profile(model);
  request.mutable_set()->add_aliases(alias);
  return request;
}

v1::ChangeProfileRequest ClearAll(const std::string& model) {
  v1::ChangeProfileRequest request = Profile(model);
  request.set_clear_all(true);
  return request;
}

class ProfileServiceTest : public sim::AskedAgents {
 protected:
  absl::StatusOr<v1::ChangeProfileResponse> Change(int at, const v1::ChangeProfileRequest& asked) {
    return Ask(at, kChangeProfile, asked);
  }
};

TEST_F(ProfileServiceTest, AProfileIsKnownOnEveryNodeAndGoesWhenItIsCleared) {
  Begin(3);
  v1::ChangeProfileRequest request = Profile("m0");
  request.mutable_set()->mutable_sampling()->set_temperature(0.5);
  request.mutable_set()->set_max_tokens(100);
  const auto changed = Change(Follower(), request);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_TRUE(changed->changed());
  EXPECT_FALSE(Change(Leader(), request)->changed());
  sim().RunFor(2000);
  for (int at = 0; at < 3; ++at) {
    const auto listed = Ask(at, kListProfiles, v1::ListProfilesRequest());
    ASSERT_TRUE(listed.ok());
    ASSERT_EQ(listed->profiles_size(), 1) << at;
    EXPECT_EQ(listed->profiles(0).max_tokens(), 100u);
    EXPECT_EQ(listed->profiles(0).sampling().temperature(), 0.5);
  }
  EXPECT_TRUE(Change(Follower(), ClearAll("m0"))->changed());
  sim().RunFor(2000);
  for (int at = 0; at < 3; ++at) {
    EXPECT_EQ(Ask(at, kListProfiles, v1::ListProfilesRequest())->profiles_size(), 0) << at;
  }
}

TEST_F(ProfileServiceTest, AModelThatNobodyHasIsNamedWithTheNearest) {
  Begin(2);
  for (const int at : LeaderAndFollower()) {
    const auto refused = Change(at, Alias("m9", "gpt"));
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(CodeOf(refused), reasons::kModelNotFound);
    EXPECT_THAT(ReasonOf(refused.status()).message(), HasSubstr("'m9'"));
    EXPECT_THAT(ReasonOf(refused.status()).message(), HasSubstr("m0"));
  }
  EXPECT_EQ(CodeOf(Change(Leader(), Profile(std::string(5000, 'x')))), reasons::kModelNotFound);
  EXPECT_THAT(desired(Leader()).profiles(), IsEmpty());
}

// Requests for the alias would go to whichever the gateway looks at first.
TEST_F(ProfileServiceTest, AnAliasIsNoModelAndNobodyElsesAlias) {
  Begin(2);
  const auto model = Change(Follower(), Alias("m0", "m1"));
  EXPECT_EQ(CodeOf(model), reasons::kBadRequest);
  EXPECT_THAT(ReasonOf(model.status()).message(), HasSubstr("'m1'"));
  ASSERT_TRUE(Change(Leader(), Alias("m0", "gpt")).ok());
  const auto taken = Change(Follower(), Alias("m1", "gpt"));
  EXPECT_EQ(CodeOf(taken), reasons::kBadRequest);
  EXPECT_THAT(ReasonOf(taken.status()).message(), HasSubstr("m0"));
  EXPECT_THAT(desired(Leader()).profiles().at("m0").aliases(), ElementsAre("gpt"));
  EXPECT_EQ(desired(Leader()).FindProfile("m1"), nullptr);
}

// Loaded under a name of its own, and remembered while the cluster is stopped.
TEST_F(ProfileServiceTest, WhatIsLoadedHasProfilesUnderItsOwnName) {
  Begin(2);
  v1::LoadModelRequest load;
  load.set_name_or_path("m1");
  load.set_deployment_name("chat");
  ASSERT_TRUE(Ask(Follower(), kLoadModel, load).ok());
  EXPECT_TRUE(Change(Follower(), Alias("chat", "gpt")).ok());
  EXPECT_EQ(CodeOf(Change(Follower(), Alias("m0", "chat"))), reasons::kBadRequest);
  v1::PauseClusterRequest stop;
  stop.set_order(v1::PAUSE_ORDER_STOP);
  ASSERT_TRUE(Ask(Leader(), kPauseCluster, stop).ok());
  EXPECT_TRUE(Change(Follower(), Alias("chat", "gpt-4")).ok());
  EXPECT_EQ(CodeOf(Change(Follower(), Alias("m0", "chat"))), reasons::kBadRequest);
}

// Nobody has it any more: what is said of it can be taken back all the same.
TEST_F(ProfileServiceTest, AProfileOfAModelThatIsGoneCanBeCleared) {
  Begin(2);
  v1::LoadModelRequest load;
  load.set_name_or_path("m1");
  load.set_deployment_name("chat");
  ASSERT_TRUE(Ask(Leader(), kLoadModel, load).ok());
  ASSERT_TRUE(Change(Leader(), Alias("chat", "gpt")).ok());
  v1::UnloadModelRequest unload;
  unload.set_name("chat");
  ASSERT_TRUE(Ask(Leader(), kUnloadModel, unload).ok());
  const auto cleared = Change(Follower(), ClearAll("chat"));
  ASSERT_TRUE(cleared.ok()) << cleared.status();
  EXPECT_TRUE(cleared->changed());
  EXPECT_EQ(CodeOf(Change(Follower(), ClearAll("chat"))), reasons::kModelNotFound);
}

TEST_F(ProfileServiceTest, ABadValueIsNamedAndNothingOfTheOrderIsWritten) {
  Begin(2);
  v1::ChangeProfileRequest hot = Alias("m0", "gpt");
  hot.mutable_set()->mutable_sampling()->set_temperature(3);
  v1::ChangeProfileRequest array = Alias("m0", "gpt");
  array.mutable_set()->set_template_arguments_json("[1]");
  v1::ChangeProfileRequest unknown = Alias("m0", "gpt");
  unknown.add_cleared("temperatur");
  for (const auto& [request, word] :
       {std::pair(hot, "temperature"), std::pair(array, "JSON object"),
        std::pair(unknown, "temperatur")}) {
    const auto refused = Change(Follower(), request);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(ReasonOf(refused.status()).message(), HasSubstr(word));
  }
  EXPECT_THAT(desired(Leader()).profiles(), IsEmpty());
}

TEST_F(ProfileServiceTest, ProfilesAreReadWithoutACoordinatorAndOutliveOne) {
  Begin(3, [](auto& options) { options.consistency = Consistency::kQuorum; });
  ASSERT_TRUE(Change(Follower(), Alias("m0", "gpt")).ok());
  sim().RunFor(2000);
  const int left = Follower();
  for (int other = 0; other < 3; ++other) {
    if (other != left) sim().Crash(other);
  }
  sim().RunFor(4000);
  EXPECT_EQ(CodeOf(Change(left, Alias("m0", "other"))), reasons::kNoCoordinator);
  EXPECT_EQ(Ask(left, kListProfiles, v1::ListProfilesRequest())->profiles_size(), 1);
  sim().StartAll();
  sim().RunFor(8000);
  EXPECT_THAT(desired(Leader()).profiles().at("m0").aliases(), ElementsAre("gpt"));
}

}  // namespace
}  // namespace macrame::agentd
