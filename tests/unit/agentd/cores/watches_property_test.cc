// What looks at the cluster again and again, at random: alerts, idle models, links to be measured,
// the list of members. What must hold at each look, held against plain books of what was there.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/cores/alert_tracker.h"
#include "agentd/cores/idle_models.h"
#include "agentd/cores/link_schedule.h"
#include "agentd/cores/member_list.h"
#include "proto/reason_codes.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Random = std::mt19937_64;

const MonotonicTime kStart = MonotonicTime() + std::chrono::hours(1);

// --- alerts --------------------------------------------------------------------------------------

// One problem that comes and goes, as somebody who is told of it sees it.
class ToldProblem {
 public:
  void Look(bool is_there, MonotonicTime now, const AlertOptions& options) {
    if (is_there) {
      if (!seen_at_ || now - *seen_at_ > options.raise_after / 2) came_at_ = now;
      seen_at_ = now;
    }
    is_there_ = is_there;
    now_ = now;
    options_ = options;
  }
  void Take(const Alert& alert) {
    if (alert.is_over) {
      EXPECT_TRUE(is_told_) << "the end of what nobody was told of";
      EXPECT_GE(now_ - *seen_at_, options_.over_after);
    } else {
      EXPECT_FALSE(is_told_) << "told twice";
      EXPECT_TRUE(is_there_);
    }
    is_told_ = !alert.is_over;
  }
  // After all that was to be told at this look.
  void Check() const {
    if (!seen_at_) return;
    const bool stays = is_there_ && now_ - came_at_ >= options_.raise_after;
    EXPECT_TRUE(is_told_ || !stays) << "it stays, and nobody is told";
    EXPECT_TRUE(!is_told_ || now_ - *seen_at_ < options_.over_after) << "its end is not told";
  }
  bool is_told() const { return is_told_; }

 private:
  std::optional<MonotonicTime> seen_at_;
  MonotonicTime came_at_, now_;
  AlertOptions options_;
  bool is_there_ = false, is_told_ = false;
};

TEST(AlertsProperty, WhatStaysIsToldOnceAndItsEndOnce) {
  const AlertOptions options;
  size_t told = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Random random(seed);
    AlertTracker tracker(options);
    std::map<std::string, ToldProblem> problems;
    std::vector<bool> is_there(4);
    MonotonicTime now = kStart;
    for (int look = 0; look < 400; ++look) {
      now += milliseconds(500 + random() % 1500);
      std::vector<Problem> present;
      for (size_t i = 0; i < is_there.size(); ++i) {
        if (random() % 12 == 0) is_there[i] = !is_there[i];
        const std::string node = absl::StrCat("node", i);
        problems[node].Look(is_there[i], now, options);
        if (!is_there[i]) continue;
        v1::Reason reason;
        reason.set_code(reasons::kNodeDead);
        reason.set_node_id(node);
        present.push_back({reason, ""});
      }
      for (const Alert& alert : tracker.Update(present, now, 1'000'000)) {
        problems[alert.reason.node_id()].Take(alert);
        ++told;
      }
      size_t raised = 0;
      for (const auto& [node, problem] : problems) {
        problem.Check();
        raised += problem.is_told();
      }
      EXPECT_EQ(tracker.Raised().size(), raised);
      if (::testing::Test::HasFailure()) FAIL() << "seed " << seed << ", look " << look;
    }
  }
  EXPECT_GT(told, 500u);
}

// --- idle models ---------------------------------------------------------------------------------

// A model with one or two replicas, and what somebody does with it.
struct UsedModel {
  std::string name;
  std::vector<v1::DeploymentStatus> replicas;
  std::optional<MonotonicTime> used_at;  // as far as looks tell
  bool has_priority = false;
};

UsedModel MakeModel(const std::string& name, uint32_t replicas, bool has_priority) {
  UsedModel model{name, {}, {}, has_priority};
  for (uint32_t i = 0; i < replicas; ++i) {
    v1::DeploymentStatus& one = model.replicas.emplace_back();
    one.mutable_deployment()->set_name(ReplicaName(name, i));
    one.mutable_deployment()->set_priority(has_priority ? 3 : 0);
    one.set_state(v1::DEPLOYMENT_STATE_READY);
    one.set_epoch(1001);
    one.add_ranks();
    one.add_ranks()->set_rank(1);
  }
  return model;
}

// One thing that happens to a replica; true: it is use.
bool Happen(Random& random, v1::DeploymentStatus& replica) {
  v1::RankStatus& entry = *replica.mutable_ranks(0);
  entry.set_requests_running(0);
  entry.set_requests_queued(0);
  replica.set_state(v1::DEPLOYMENT_STATE_READY);
  switch (random() % 40) {
    case 0:
      entry.set_requests_running(1);
      return true;
    case 1:
      entry.set_requests_queued(1);
      return true;
    case 2:
      entry.set_tokens_generated_total(entry.tokens_generated_total() + 7);
      return true;
    case 3:
      replica.set_epoch(replica.epoch() + 1);
      return true;
    case 4:
      replica.set_state(v1::DEPLOYMENT_STATE_LAUNCHING);
      return true;
    case 5:
      // Another rank than the entry tells of tokens, too: of the same ones.
      replica.mutable_ranks(1)->set_tokens_generated_total(random() % 100);
      return false;
    default:
      return false;
  }
}

TEST(IdleModelsProperty, WhatIsNotUsedForTheLimitIsNamedAtEachLook) {
  constexpr Duration kLimit = seconds(60);
  size_t named = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Random random(seed);
    IdleModels idle(kLimit);
    std::vector<UsedModel> models = {MakeModel("a", 1, false), MakeModel("b", 2, false),
                                     MakeModel("c", 1, true)};
    MonotonicTime now = kStart;
    for (int look = 0; look < 200; ++look) {
      now += seconds(1 + random() % 10);
      std::vector<v1::DeploymentStatus> present;
      std::vector<std::string> expected;
      std::vector<std::pair<MonotonicTime, std::string>> unused;
      for (UsedModel& model : models) {
        bool is_used = !model.used_at.has_value();
        for (v1::DeploymentStatus& replica : model.replicas) is_used |= Happen(random, replica);
        if (random() % 60 == 0) {
          model.used_at.reset();  // unloaded at this look
          continue;
        }
        present.insert(present.end(), model.replicas.begin(), model.replicas.end());
        if (is_used) model.used_at = now;
        if (now - *model.used_at >= kLimit) expected.push_back(model.name);
        if (!model.has_priority && now - *model.used_at >= seconds(10)) {
          unused.emplace_back(*model.used_at, model.name);
        }
      }
      ASSERT_EQ(idle.Look(present, now), expected) << "seed " << seed << ", look " << look;
      std::sort(unused.begin(), unused.end());
      std::vector<std::string> oldest_first;
      for (const auto& [used_at, name] : unused) oldest_first.push_back(name);
      ASSERT_EQ(idle.LeastRecentlyUsed(now, seconds(10)), oldest_first) << "seed " << seed;
      named += expected.size();
    }
  }
  EXPECT_GT(named, 1000u);
}

// --- links ---------------------------------------------------------------------------------------

LinkPair Pair(size_t peer, size_t path) {
  LinkPair pair;
  pair.to_node_id = absl::StrCat("node", peer);
  pair.from_ip = absl::StrCat("10.0.", path, ".1");
  pair.to_ip = absl::StrCat("10.0.", path, ".", 2 + peer);
  return pair;
}

// When each pair may be measured next.
struct DueBook {
  MonotonicTime due{};
  int failures = 0;
};

TEST(LinkScheduleProperty, OneAtATimeAndEachAtItsTime) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    LinkSchedule schedule;
    std::map<LinkPair, DueBook> book;
    std::vector<LinkPair> pairs;
    for (size_t peer = 0; peer < 3; ++peer) {
      for (size_t path = 0; path < 2; ++path) pairs.push_back(Pair(peer, path));
    }
    schedule.SetPairs(pairs);
    for (const LinkPair& pair : pairs) book[pair] = {};
    MonotonicTime now = kStart, not_before;
    std::optional<LinkPair> running;
    for (int step = 0; step < 2000; ++step) {
      now += milliseconds(random() % 4 == 0 ? 20'000 : 60);
      if (running.has_value()) {
        ASSERT_FALSE(schedule.Next(now).has_value()) << "two at once";
        ASSERT_FALSE(schedule.IsIdle());
        const bool ok = random() % 3 != 0;
        schedule.Done(*running, ok, now);
        DueBook& one = book[*running];
        one.failures = ok ? 0 : one.failures + 1;
        Duration wait = kLinkRefreshInterval;
        for (int i = 0; !ok && i < one.failures && i < 7; ++i) {
          wait = i == 0 ? Duration(kLinkRetryFirst) : wait * 2;
        }
        one.due = now + wait;
        not_before = now + kLinkPause;
        running.reset();
      } else if (random() % 200 == 0) {
        const std::string peer = absl::StrCat("node", random() % 3);
        schedule.Hurry(peer);
        for (auto& [pair, one] : book) {
          if (pair.to_node_id == peer) one = {};
        }
      }
      const bool any_due = std::any_of(book.begin(), book.end(),
                                       [&](const auto& item) { return item.second.due <= now; });
      running = schedule.Next(now);
      ASSERT_EQ(running.has_value(), any_due && now >= not_before)
          << "seed " << seed << ", step " << step;
      if (!running.has_value()) continue;
      for (const auto& [pair, one] : book) {
        ASSERT_GE(one.due, book[*running].due) << "what waits longest comes first";
      }
    }
  }
}

TEST(LinkScheduleProperty, APairThatGoesWhileItIsMeasuredHoldsNothingUp) {
  LinkSchedule schedule;
  schedule.SetPairs({Pair(0, 0), Pair(1, 0)});
  const auto running = schedule.Next(kStart);
  ASSERT_TRUE(running.has_value());
  schedule.SetPairs({running->to_node_id == "node0" ? Pair(1, 0) : Pair(0, 0)});
  schedule.Done(*running, true, kStart + seconds(1));
  EXPECT_EQ(schedule.size(), 1u) << "what is gone does not come back by its result";
  EXPECT_TRUE(schedule.Next(kStart + seconds(1) + kLinkPause).has_value());
}

// --- the list of members -------------------------------------------------------------------------

NodeId Member(size_t index) {
  return NodeId(std::string(31, '0') +
                static_cast<char>(index < 10 ? '0' + index : 'a' + index - 10));
}

// Members that come and go around a coordinator, which writes what is due.
class ListedCluster {
 public:
  ListedCluster(uint64_t seed, Consistency consistency)
      : random_(seed), consistency_(consistency), list_(Member(0), consistency) {
    table_.BeginLeading({Term(1), Member(0)});
    list_.BeginLeading(now_);
  }

  void Step() {
    now_ += milliseconds(random_() % 900);
    std::set<NodeId> live = {Member(0)};
    for (size_t i = 1; i < is_live_.size(); ++i) {
      if (random_() % 25 == 0) is_live_[i] = !is_live_[i];
      if (is_live_[i]) live.insert(Member(i));
      if (!is_live_[i]) since_.erase(Member(i));
      if (is_live_[i]) away_.erase(Member(i));
    }
    for (const NodeId& node : live) since_.try_emplace(node, now_);
    for (size_t i = 1; i < is_live_.size(); ++i) {
      if (!is_live_[i] && ListedMembers(table_).contains(Member(i))) {
        away_.try_emplace(Member(i), now_);
      }
    }
    const bool committed = random_() % 4 != 0;
    const std::set<NodeId> before = ListedMembers(table_);
    const auto due = list_.Due(table_, live, live, committed, now_);
    if (!due.has_value()) return;
    EXPECT_TRUE(committed) << "one write at a time";
    const auto proposal = table_.Propose(kMembersKey, due->SerializeAsString());
    ASSERT_TRUE(proposal.ok());
    Check(before, ListedMembers(table_), live);
  }

 private:
  void Check(const std::set<NodeId>& before, const std::set<NodeId>& after,
             const std::set<NodeId>& live) {
    EXPECT_TRUE(after.contains(Member(0))) << "who leads is listed";
    for (const NodeId& node : after) {
      if (before.contains(node) || before.empty()) continue;
      EXPECT_TRUE(live.contains(node)) << "nobody is listed who is not there";
      const bool is_new = now_ - since_.at(node) < seconds(3);
      EXPECT_FALSE(consistency_ == Consistency::kQuorum && is_new);
    }
    size_t gone = 0;
    for (const NodeId& node : before) {
      if (after.contains(node)) continue;
      ++gone;
      EXPECT_FALSE(live.contains(node));
      EXPECT_GE(now_ - away_.at(node), seconds(3)) << "who is away for a moment stays";
      away_.erase(node);
    }
    if (consistency_ != Consistency::kQuorum || before.empty()) return;
    EXPECT_EQ(gone, 0u) << "a quorum never shrinks by itself";
    EXPECT_LE(after.size(), before.size() + 1) << "two majorities could be counted apart";
  }

  Random random_;
  const Consistency consistency_;
  StateTable table_{Member(0)};
  MemberList list_;
  MonotonicTime now_ = kStart;
  std::vector<bool> is_live_ = std::vector<bool>(12, true);
  std::map<NodeId, MonotonicTime> since_, away_;
};

TEST(MemberListProperty, EachChangeIsOneThatItsKindOfClusterMayMake) {
  for (const Consistency consistency : {Consistency::kAvailable, Consistency::kQuorum}) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      ListedCluster cluster(seed, consistency);
      for (int step = 0; step < 300; ++step) cluster.Step();
      if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace macrame::agentd
