#include "agentd/state/entry_table.h"

#include <gtest/gtest.h>

#include <string>

#include "agentd/cores/gang_reconciler.h"
#include "macrame/v1/agent.pb.h"
#include "proto/replicas.h"
#include "tests/support/fake_dispatcher.h"

namespace macrame::agentd {
namespace {

const NodeId kOwnNode("11111111111111111111111111111111");

// A model with three replicas, each on a node of its own.
class EntryTableTest : public ::testing::Test {
 protected:
  EntryTableTest() : table_(kOwnNode), entries_(clock_, desired_) {
    table_.BeginLeading(FencePair{});
    v1::Deployment wanted;
    wanted.set_name("m");
    wanted.set_replicas(3);
    Put(DeploymentKey("m"), wanted.SerializeAsString());
    for (uint32_t index = 0; index < 3; ++index) Place(index, 1);
  }
  void Put(const std::string& key, std::string value) {
    ASSERT_TRUE(table_.Propose(key, std::move(value)).ok());
  }
  void Place(uint32_t index, uint64_t epoch) {
    v1::GangRecord record;
    record.set_deployment(ReplicaName("m", index));
    record.set_epoch(epoch);
    record.set_entry_node_id(std::string(32, static_cast<char>('a' + index)));
    Put(GangKey(record.deployment()), record.SerializeAsString());
  }
  static std::vector<PromptStep> Prompt(const std::string& name, int turns = 1) {
    v1::GenerateRequest request;
    for (int i = 0; i < turns; ++i) {
      request.add_messages()->set_content(name + std::to_string(i) +
                                          std::string(kAffinityBytesMin, '.'));
    }
    return PromptSteps(request);
  }
  // Where a request goes; it stays under way.
  std::string Send(const std::vector<PromptStep>& prompt) {
    const auto entry = entries_.Find("m", prompt);
    if (!entry.ok()) return entry.status().ToString();
    entries_.NoteSent(*entry, prompt);
    return entry->replica;
  }
  std::string SendAndEnd(const std::vector<PromptStep>& prompt, bool failed = false) {
    const std::string replica = Send(prompt);
    entries_.NoteOver(replica, failed);
    return replica;
  }

  transport::FakeDispatcher clock_;
  StateTable table_;
  DesiredState desired_{table_};
  EntryTable entries_;
};

TEST_F(EntryTableTest, RequestsThatHaveNothingInCommonTakeTurns) {
  EXPECT_TRUE(entries_.HasChoice("m"));
  EXPECT_FALSE(entries_.HasChoice("m#2")) << "that one is named";
  EXPECT_EQ(SendAndEnd({}), "m");
  EXPECT_EQ(SendAndEnd({}), "m#2");
  EXPECT_EQ(SendAndEnd({}), "m#3");
  EXPECT_EQ(SendAndEnd({}), "m");
}

TEST_F(EntryTableTest, AConversationStaysWhereItsLastTurnWasAnswered) {
  EXPECT_EQ(SendAndEnd(Prompt("one")), "m");
  EXPECT_EQ(SendAndEnd(Prompt("two")), "m#2");
  for (int turns = 2; turns < 6; ++turns) {
    EXPECT_EQ(SendAndEnd(Prompt("two", turns)), "m#2") << turns;
    EXPECT_EQ(SendAndEnd(Prompt("one", turns)), "m") << turns;
  }
}

TEST_F(EntryTableTest, AReplicaThatIsMuchBusierIsLeftAlone) {
  const auto prompt = Prompt("one");
  for (uint32_t i = 0; i <= kAffinityRequests; ++i) EXPECT_EQ(Send(prompt), "m") << i;
  EXPECT_EQ(Send(prompt), "m#2");
  EXPECT_EQ(Send(prompt), "m#2") << "it is known there, too, from then on";
}

TEST_F(EntryTableTest, RanksThatWereLaunchedAnewKnowNothing) {
  EXPECT_EQ(SendAndEnd(Prompt("one")), "m");
  Place(0, 2);
  EXPECT_EQ(SendAndEnd(Prompt("one", 2)), "m#2");
  EXPECT_EQ(SendAndEnd(Prompt("one", 3)), "m#2");
}

TEST_F(EntryTableTest, AReplicaWithoutAnAnswerIsPassedOver) {
  EXPECT_EQ(SendAndEnd(Prompt("one")), "m");
  EXPECT_EQ(SendAndEnd(Prompt("one", 2), /*failed=*/true), "m");
  EXPECT_EQ(SendAndEnd(Prompt("one", 2)), "m#2");
  clock_.AdvanceBy(kFailedReplicaPause);
  EXPECT_EQ(SendAndEnd(Prompt("one", 3)), "m#2") << "the longer beginning";
}

}  // namespace
}  // namespace macrame::agentd
