#include "agentd/services/gathering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>

#include "agentd/base/rpc_methods.h"
#include "proto/reasons.h"
#include "tests/unit/agentd/fake_peers.h"

namespace macrame::agentd {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using tests::IdOf;

using Answer = absl::StatusOr<v1::ListEventsResponse>;

class GatheringTest : public ::testing::Test {
 protected:
  GatheringTest() { channels_.UsePlain(); }

  struct Asked {
    std::map<NodeId, std::vector<Answer>> taken;
    int done = 0;
    bool took_after_done = false;
  };
  std::shared_ptr<Asked> Ask(const std::set<NodeId>& nodes, std::function<void()> then = nullptr) {
    auto asked = std::make_shared<Asked>();
    v1::ListEventsRequest request;
    request.set_since_unix_ms(7);
    AskEach(
        channels_, nodes, kListEvents, request, seconds(3),
        [asked](const NodeId& node, Answer answer) {
          asked->took_after_done |= asked->done > 0;
          asked->taken[node].push_back(std::move(answer));
        },
        [asked, then = std::move(then)] {
          ++asked->done;
          if (then) then();
        });
    return asked;
  }
  static std::set<NodeId> Nodes(std::string_view digits) {
    std::set<NodeId> nodes;
    for (const char digit : digits) nodes.insert(IdOf(digit));
    return nodes;
  }

  tests::FakePeers peers_;
  PeerChannels channels_{peers_.Maker()};
};

TEST_F(GatheringTest, WhereNobodyIsAskedItEndsAtOnce) {
  const auto asked = Ask({});
  EXPECT_EQ(asked->done, 1);
  EXPECT_THAT(asked->taken, IsEmpty());
}

TEST_F(GatheringTest, AllAreAskedAtOnceTheSameAndItEndsWithTheLastAnswer) {
  const auto asked = Ask(Nodes("bcd"));
  ASSERT_THAT(peers_.Open(), SizeIs(3));
  for (const auto& call : peers_.Open()) {
    EXPECT_EQ(call->path, kListEvents.path);
    EXPECT_EQ(call->timeout, Duration(seconds(3)));
    EXPECT_EQ(call->As<v1::ListEventsRequest>().since_unix_ms(), 7u);
    EXPECT_EQ(asked->done, 0);
    call->Answer(v1::ListEventsResponse());
  }
  EXPECT_EQ(asked->done, 1);
  EXPECT_THAT(asked->taken, SizeIs(3));
}

TEST_F(GatheringTest, WhoCantBeCalledIsAnAnswerToo) {
  channels_.SetRevoked(Nodes("c"));
  const auto asked = Ask(Nodes("bc"));
  ASSERT_THAT(asked->taken[IdOf('c')], SizeIs(1));
  const absl::Status why = asked->taken[IdOf('c')].front().status();
  EXPECT_EQ(ReasonOf(why).code(), reasons::kEntryUnreachable);
  EXPECT_EQ(ReasonOf(why).node_id(), IdOf('c').value());
  EXPECT_THAT(ReasonOf(why).message(), HasSubstr(ShortId(IdOf('c'))));
  EXPECT_EQ(asked->done, 0);
  peers_.last().End(absl::DeadlineExceededError("slow"));
  EXPECT_EQ(asked->done, 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(asked->taken[IdOf('b')].front().status()));
}

TEST_F(GatheringTest, WhereNobodyCanBeCalledItEndsAllTheSame) {
  channels_.SetRevoked(Nodes("bc"));
  const auto asked = Ask(Nodes("bc"));
  EXPECT_EQ(asked->done, 1);
  EXPECT_THAT(asked->taken, SizeIs(2));
}

TEST_F(GatheringTest, ANodeThatIsForgottenMeanwhileIsNotWaitedFor) {
  const auto asked = Ask(Nodes("bc"));
  const auto other = Ask(Nodes("c"));
  channels_.Forget(IdOf('c'));
  EXPECT_EQ(asked->done, 0);
  EXPECT_EQ(other->done, 1) << "each that waits for it";
  peers_.To(IdOf('b')).front()->Answer(v1::ListEventsResponse());
  EXPECT_EQ(asked->done, 1);
  EXPECT_FALSE(asked->taken[IdOf('c')].front().ok());
}

TEST_F(GatheringTest, ANodeThatAnsweredAndGoesThenChangesNothing) {
  const auto asked = Ask(Nodes("bc"));
  peers_.To(IdOf('c')).front()->Answer(v1::ListEventsResponse());
  channels_.Forget(IdOf('c'));
  ASSERT_THAT(asked->taken[IdOf('c')], SizeIs(1));
  EXPECT_TRUE(asked->taken[IdOf('c')].front().ok());
  EXPECT_EQ(asked->done, 0);
}

TEST_F(GatheringTest, WhatEndsMayAskAnew) {
  std::shared_ptr<Asked> second;
  const auto first = Ask(Nodes("b"), [&] { second = Ask(Nodes("c")); });
  channels_.Forget(IdOf('b'));
  EXPECT_EQ(first->done, 1);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->done, 0);
  peers_.last().Answer(v1::ListEventsResponse());
  EXPECT_EQ(second->done, 1);
}

// Whatever answers, fails and goes in whatever order: each node counts once, and the end comes
// once, after all of them.
TEST_F(GatheringTest, EachNodeCountsOnceAndTheEndComesOnce) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 dice(seed);
    const std::string all = "bcdefg";
    std::vector<std::shared_ptr<Asked>> gatherings;
    std::vector<size_t> sizes;
    std::set<NodeId> revoked;
    for (const char node : all) {
      if (dice() % 6 == 0) revoked.insert(IdOf(node));
    }
    channels_.SetRevoked(revoked);
    for (int step = 0; step < 40; ++step) {
      const auto open = peers_.Open();
      const uint32_t what = dice() % 4;
      if (what == 0 && gatherings.size() < 8) {
        std::set<NodeId> nodes = {IdOf(all[dice() % all.size()])};
        for (const char node : all) {
          if (dice() % 2 == 0) nodes.insert(IdOf(node));
        }
        sizes.push_back(nodes.size());
        gatherings.push_back(Ask(nodes));
      } else if (what == 1) {
        channels_.Forget(IdOf(all[dice() % all.size()]));
      } else if (!open.empty()) {
        tests::PeerCall& call = *open[dice() % open.size()];
        what == 2 ? call.Answer(v1::ListEventsResponse()) : call.End(absl::AbortedError("no"));
      }
    }
    for (const char node : all) channels_.Forget(IdOf(node));
    for (size_t at = 0; at < gatherings.size(); ++at) {
      EXPECT_EQ(gatherings[at]->done, 1);
      EXPECT_FALSE(gatherings[at]->took_after_done);
      EXPECT_EQ(gatherings[at]->taken.size(), sizes[at]);
      for (const auto& [node, answers] : gatherings[at]->taken) EXPECT_THAT(answers, SizeIs(1));
    }
  }
}

}  // namespace
}  // namespace macrame::agentd
