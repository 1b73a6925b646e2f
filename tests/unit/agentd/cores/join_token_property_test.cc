// Join tokens under anybody who asks, at random: what a token may do at most, and that nobody who
// was let in is shut out for an answer that was lost.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/cores/join_token_table.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

const MonotonicTime kStart = MonotonicTime() + std::chrono::hours(1);

JoinAsker Asker(size_t index, const std::string& digest = "key") {
  const std::string id = absl::StrCat(1000 + index);
  return {NodeId(id + std::string(32 - id.size(), '0')), absl::StrCat("mac", index), "10.0.0.7",
          digest};
}

JoinPass Pass(const std::string& id, uint32_t uses, bool approve, MonotonicTime expires) {
  JoinPass pass;
  pass.id = id;
  pass.secret = std::string(32, 's');
  pass.expires = expires;
  pass.uses_left = uses;
  pass.approve = approve;
  return pass;
}

std::string Code(const absl::Status& status) { return ReasonOf(status).code(); }

// What a person who made a token expects of it.
struct MadeToken {
  uint32_t uses;
  bool approve;
  MonotonicTime expires;
  std::set<std::string> let_in, approved;
  std::optional<MonotonicTime> used_up_at;
};

class TokensAtRandom {
 public:
  explicit TokensAtRandom(uint64_t seed) : random_(seed) {}

  void Step() {
    now_ += milliseconds(random_() % 4000);
    switch (random_() % 6) {
      case 0:
        return Make();
      case 1:
        return Approve();
      case 2:
        return Revoke();
      default:
        return Ask();
    }
  }
  size_t let_in() const { return let_in_; }

 private:
  void Make() {
    if (tokens_ == 6) return;
    const std::string id = absl::StrCat("token", tokens_++);
    const auto uses = static_cast<uint32_t>(1 + random_() % 3);
    const bool approve = random_() % 2 == 0;
    const MonotonicTime expires = now_ + seconds(20 + random_() % 300);
    ASSERT_TRUE(table_.Add(Pass(id, uses, approve, expires), now_).ok());
    made_[id] = {uses, approve, expires, {}, {}, {}};
  }

  // A person looks who waits, and lets one of them in.
  void Approve() {
    const std::vector<JoinAsker> waiting = table_.Waiting(now_);
    for (const JoinAsker& asker : waiting) {
      EXPECT_TRUE(waits_for_.contains(asker.node.value())) << asker.hostname << " never asked";
    }
    if (waiting.empty()) return;
    const JoinAsker& chosen = waiting[random_() % waiting.size()];
    const auto approved = table_.Approve(chosen.node.value(), now_);
    ASSERT_TRUE(approved.ok()) << approved.status();
    made_[waits_for_[chosen.node.value()]].approved.insert(chosen.node.value());
    const std::vector<JoinAsker> left = table_.Waiting(now_);
    EXPECT_TRUE(std::none_of(left.begin(), left.end(),
                             [&](const JoinAsker& one) { return one.node == chosen.node; }));
  }

  void Revoke() {
    if (random_() % 8 != 0) return;
    const NodeId node = Asker(random_() % 8).node;
    table_.ForgetTokensOf(node);
    std::erase_if(made_,
                  [&](const auto& item) { return item.second.let_in.contains(node.value()); });
  }

  void Ask() {
    const std::string id = absl::StrCat("token", random_() % 6);
    const JoinAsker asker = Asker(random_() % 8);
    const auto verdict = table_.Take(id, asker, now_);
    const auto made = made_.find(id);
    if (made == made_.end()) {
      EXPECT_FALSE(verdict.ok()) << "of a token that is none";
      return;
    }
    Expect(made->second, asker, verdict);
    if (verdict.ok() && *verdict == JoinVerdict::kWait) waits_for_[asker.node.value()] = id;
  }

  void Expect(MadeToken& token, const JoinAsker& asker,
              const absl::StatusOr<JoinVerdict>& verdict) {
    const std::string& node = asker.node.value();
    const bool is_kept = !token.used_up_at || now_ < *token.used_up_at + kUsedTokenKept;
    const bool is_valid = now_ < token.expires && is_kept;
    if (is_valid && token.let_in.contains(node)) {
      ASSERT_TRUE(verdict.ok()) << "its answer may have been lost: " << verdict.status();
      EXPECT_EQ(*verdict, JoinVerdict::kIssue);
      return;
    }
    if (!is_valid || token.let_in.size() >= token.uses) {
      EXPECT_EQ(Code(verdict.status()), "TOKEN_USED");
      return;
    }
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    if (*verdict == JoinVerdict::kWait) {
      EXPECT_TRUE(token.approve && !token.approved.contains(node));
      return;
    }
    EXPECT_TRUE(!token.approve || token.approved.contains(node)) << "nobody approved it";
    token.let_in.insert(node);
    ++let_in_;
    if (token.let_in.size() == token.uses) token.used_up_at = now_;
  }

  std::mt19937_64 random_;
  JoinTokenTable table_;
  MonotonicTime now_ = kStart;
  std::map<std::string, MadeToken> made_;
  size_t tokens_ = 0;
  std::map<std::string, std::string> waits_for_;  // token by node
  size_t let_in_ = 0;
};

TEST(JoinTokensProperty, ATokenLetsInAsManyAsItMayAndTheseAgain) {
  size_t let_in = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    TokensAtRandom tokens(seed);
    for (int step = 0; step < 200; ++step) tokens.Step();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
    let_in += tokens.let_in();
  }
  EXPECT_GT(let_in, 1000u);
}

// --- who may try ---------------------------------------------------------------------------------

// All failures there were.
class FailureBook {
 public:
  void Note(const std::string& address, MonotonicTime now) { failures_.push_back({address, now}); }
  bool MayTry(const std::string& address, MonotonicTime now) const {
    size_t of_all = 0, of_one = 0;
    std::set<std::string> addresses;
    for (const auto& [from, at] : failures_) {
      if (now - at > kAttemptWindow) continue;
      ++of_all;
      of_one += from == address;
      addresses.insert(from);
    }
    const bool has_room = addresses.contains(address) || addresses.size() < kAttemptAddressesMax;
    return of_one < kFailuresPerAddressMax && of_all < kFailuresMax && has_room;
  }

 private:
  std::vector<std::pair<std::string, MonotonicTime>> failures_;
};

TEST(JoinTokensProperty, WhoFailsTooOftenWaitsForAsLongAsThatIsAMinuteAgo) {
  size_t refused = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    JoinTokenTable table;
    FailureBook book;
    MonotonicTime now = kStart;
    const size_t addresses = 1 + random() % 90;
    for (int i = 0; i < 400; ++i) {
      now += milliseconds(random() % 2500);
      const std::string address = absl::StrCat("10.0.0.", random() % addresses);
      const absl::Status may = table.MayTry(address, now);
      ASSERT_EQ(may.ok(), book.MayTry(address, now)) << "seed " << seed << ", attempt " << i;
      if (!may.ok()) {
        ASSERT_EQ(Code(may), "JOIN_LIMITED");
        ++refused;
        continue;
      }
      table.NoteFailure(address, now);
      book.Note(address, now);
    }
  }
  EXPECT_GT(refused, 100u);
}

TEST(JoinTokens, OneThatWasUsedUpIsExpectedAgainForAMinuteAndNoLonger) {
  JoinTokenTable table;
  EXPECT_FALSE(table.Expects(kStart));
  ASSERT_TRUE(table.Add(Pass("one", 1, false, kStart + minutes(30)), kStart).ok());
  EXPECT_TRUE(table.Expects(kStart));
  ASSERT_TRUE(table.Take("one", Asker(1), kStart + minutes(1)).ok());
  const MonotonicTime end = kStart + minutes(1) + kUsedTokenKept;
  EXPECT_TRUE(table.Expects(end - milliseconds(1))) << "its answer may have been lost";
  EXPECT_NE(table.Find("one", end - milliseconds(1)), nullptr);
  EXPECT_FALSE(table.Expects(end));
  EXPECT_EQ(table.Find("one", end), nullptr);
}

TEST(JoinTokens, TooManyAreRefusedUntilOneExpires) {
  JoinTokenTable table;
  for (size_t i = 0; i < kJoinTokensMax; ++i) {
    const MonotonicTime expires = kStart + minutes(10 + static_cast<int>(i));
    ASSERT_TRUE(table.Add(Pass(absl::StrCat("token", i), 1, false, expires), kStart).ok());
  }
  const absl::Status refused = table.Add(Pass("more", 1, false, kStart + minutes(5)), kStart);
  EXPECT_EQ(Code(refused), "JOIN_LIMITED");
  EXPECT_NE(refused.message().find("16 join tokens"), std::string::npos) << refused;
  EXPECT_EQ(table.Find("more", kStart), nullptr);
  EXPECT_TRUE(table.Add(Pass("more", 1, false, kStart + minutes(60)), kStart + minutes(10)).ok());
}

TEST(JoinTokens, TooManyThatWaitAreRefusedAndThoseThatWaitStay) {
  JoinTokenTable table;
  ASSERT_TRUE(table.Add(Pass("one", 64, true, kStart + minutes(30)), kStart).ok());
  for (size_t i = 0; i < kJoinWaitingMax; ++i) {
    ASSERT_EQ(*table.Take("one", Asker(i), kStart), JoinVerdict::kWait);
  }
  EXPECT_EQ(Code(table.Take("one", Asker(99), kStart).status()), "JOIN_LIMITED");
  EXPECT_EQ(*table.Take("one", Asker(3), kStart + seconds(20)), JoinVerdict::kWait);
  EXPECT_EQ(table.Waiting(kStart + seconds(20)).size(), kJoinWaitingMax);
  // All but the one that asks again have given up.
  EXPECT_EQ(table.Waiting(kStart + seconds(31)).size(), 1u);
  EXPECT_EQ(*table.Take("one", Asker(99), kStart + seconds(31)), JoinVerdict::kWait);
}

TEST(JoinTokens, TwoOfOneNameAreToldApartByTheirIds) {
  JoinTokenTable table;
  ASSERT_TRUE(table.Add(Pass("one", 4, true, kStart + minutes(30)), kStart).ok());
  JoinAsker first = Asker(1), second = Asker(2);
  first.hostname = second.hostname = "Mac";
  ASSERT_TRUE(table.Take("one", first, kStart).ok());
  ASSERT_TRUE(table.Take("one", second, kStart).ok());
  EXPECT_EQ(Code(table.Approve("mac", kStart).status()), "NODE_AMBIGUOUS");
  EXPECT_EQ(Code(table.Approve("100", kStart).status()), "NODE_NOT_FOUND") << "three digits";
  EXPECT_EQ(table.Approve("1001", kStart)->node, first.node);
  EXPECT_EQ(*table.Take("one", first, kStart), JoinVerdict::kIssue);
  EXPECT_EQ(table.Approve("mac", kStart)->node, second.node) << "the name is one node's now";
  EXPECT_EQ(Code(table.Approve("elsewhere", kStart).status()), "NODE_NOT_FOUND");
}

// A person approves one "mac" and, before that one asks again, another of that name comes.
TEST(JoinTokens, WhoIsApprovedAlreadyIsInNobodysWay) {
  JoinTokenTable table;
  ASSERT_TRUE(table.Add(Pass("one", 4, true, kStart + minutes(30)), kStart).ok());
  JoinAsker first = Asker(1), second = Asker(2);
  first.hostname = second.hostname = "mac";
  ASSERT_TRUE(table.Take("one", first, kStart).ok());
  ASSERT_TRUE(table.Approve("mac", kStart).ok());
  EXPECT_TRUE(table.Approve("mac", kStart).ok()) << "to say so twice is no error";
  ASSERT_TRUE(table.Take("one", second, kStart).ok());
  ASSERT_EQ(table.Waiting(kStart).size(), 1u);
  const auto approved = table.Approve("mac", kStart);
  ASSERT_TRUE(approved.ok()) << "one alone is shown as waiting: " << approved.status();
  EXPECT_EQ(approved->node, second.node);
}

}  // namespace
}  // namespace macrame::agentd
