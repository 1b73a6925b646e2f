// What bounds the gateway (limits of keys, places of connections, stored answers, JSON) against
// small models, over many seeds.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/access/request_limits.h"
#include "agentd/gateway/access/stored_answers.h"
#include "agentd/gateway/base/tenant.h"
#include "agentd/gateway/fields/bounded_json.h"
#include "agentd/gateway/http/connection_room.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// --- limits of keys ------------------------------------------------------------------------------

std::string HeaderOf(const LimitVerdict& verdict, const std::string& name) {
  for (const auto& [field, value] : verdict.headers) {
    if (field == name) return value;
  }
  return "";
}

uint64_t NumberOf(const LimitVerdict& verdict, const std::string& name) {
  uint64_t number = 0;
  EXPECT_TRUE(absl::SimpleAtoi(HeaderOf(verdict, name), &number)) << name << " is missing";
  return number;
}

// In any stretch of time no more requests begin than the bucket held and what flowed into it.
TEST(LimitsProperty, NoMoreBeginThanTheBucketHolds) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    RequestLimits limits;
    Principal key;
    key.key_id = "one";
    key.requests_per_minute = static_cast<uint32_t>(1 + random() % 90);
    RequestLimits::Time now{seconds(1000)};
    std::vector<RequestLimits::Time> begun;
    for (int i = 0; i < 600; ++i) {
      now += milliseconds(random() % 900);
      const LimitVerdict verdict = limits.Begin(key, now);
      EXPECT_EQ(NumberOf(verdict, "x-ratelimit-limit-requests"), key.requests_per_minute);
      if (verdict.refused.has_value()) {
        EXPECT_EQ(NumberOf(verdict, "x-ratelimit-remaining-requests"), 0u);
        continue;
      }
      begun.push_back(now);
      limits.End(key);
    }
    for (size_t first = 0; first < begun.size(); first += 7) {
      for (size_t last = first; last < begun.size(); ++last) {
        const double minutes =
            std::chrono::duration<double>(begun[last] - begun[first]).count() / 60;
        const double most = key.requests_per_minute * (1 + minutes);
        ASSERT_LE(static_cast<double>(last - first + 1), most + 1e-6);
      }
    }
    EXPECT_FALSE(begun.empty());
  }
}

// Whoever waits as long as it was told, and is alone with its key, is let in.
TEST(LimitsProperty, WhoWaitsAsToldIsLetIn) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    RequestLimits limits;
    Principal key;
    key.key_id = "one";
    if (random() % 3 > 0) key.requests_per_minute = static_cast<uint32_t>(1 + random() % 120);
    if (random() % 3 > 0) key.tokens_per_minute = static_cast<uint32_t>(1 + random() % 9'000);
    RequestLimits::Time now{seconds(1000)};
    int refusals = 0;
    for (int i = 0; i < 60; ++i) {
      now += milliseconds(random() % 300);
      LimitVerdict verdict = limits.Begin(key, now);
      if (verdict.refused.has_value()) {
        ++refusals;
        EXPECT_EQ(verdict.refused->http_status, 429);
        EXPECT_GE(verdict.refused->retry_after_seconds, 1);
        now += seconds(verdict.refused->retry_after_seconds);
        verdict = limits.Begin(key, now);
        ASSERT_FALSE(verdict.refused.has_value()) << verdict.refused->message;
      }
      limits.AddTokens(key, random() % 500, now);
      limits.End(key);
    }
    if (key.requests_per_minute == 0 && key.tokens_per_minute == 0) {
      EXPECT_EQ(refusals, 0);
    }
  }
}

// Requests at once, of keys and of their tenant, counted by the test.
TEST(LimitsProperty, UnderWayIsCountedForKeysAndTenants) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    RequestLimits limits;
    std::vector<Principal> keys(4);
    for (size_t i = 0; i < keys.size(); ++i) {
      keys[i].key_id = absl::StrCat("key-", i);
      keys[i].tenant = i < 3 ? "law" : "";
      keys[i].concurrent_requests = static_cast<uint32_t>(random() % 4);
    }
    v1::TenantLimits law;
    law.set_concurrent_requests(static_cast<uint32_t>(1 + random() % 5));
    std::vector<uint32_t> under_way(keys.size(), 0);
    const RequestLimits::Time now{seconds(1000)};
    for (int step = 0; step < 300; ++step) {
      const size_t i = random() % keys.size();
      if (random() % 2 == 0 && under_way[i] > 0) {
        limits.End(keys[i]);
        --under_way[i];
        continue;
      }
      const uint32_t of_tenant = under_way[0] + under_way[1] + under_way[2];
      const bool key_is_full =
          keys[i].concurrent_requests > 0 && under_way[i] >= keys[i].concurrent_requests;
      const bool tenant_is_full = i < 3 && of_tenant >= law.concurrent_requests();
      const LimitVerdict verdict = limits.Begin(keys[i], now, i < 3 ? &law : nullptr);
      ASSERT_EQ(verdict.refused.has_value(), key_is_full || tenant_is_full);
      if (verdict.refused.has_value()) {
        const char* who = key_is_full ? "This API key" : "The tenant 'law'";
        EXPECT_NE(verdict.refused->message.find(who), std::string::npos)
            << verdict.refused->message;
      } else {
        ++under_way[i];
      }
      // Keys that are deleted meanwhile are forgotten when nothing of theirs is under way.
      if (random() % 20 == 0) limits.Keep({}, {});
    }
  }
}

TEST(LimitsProperty, ALimitThatIsTakenAwayHoldsNobody) {
  RequestLimits limits;
  Principal key;
  key.key_id = "one";
  key.requests_per_minute = 1;
  RequestLimits::Time now{seconds(1000)};
  EXPECT_FALSE(limits.Begin(key, now).refused.has_value());
  EXPECT_TRUE(limits.Begin(key, now).refused.has_value());
  key.requests_per_minute = 0;
  const LimitVerdict free = limits.Begin(key, now);
  EXPECT_FALSE(free.refused.has_value());
  EXPECT_TRUE(free.headers.empty()) << "no limit, no words about one";
  key.requests_per_minute = 5;
  EXPECT_FALSE(limits.Begin(key, now).refused.has_value()) << "it begins anew";
  // A clock that stands still or goes back gives nothing and takes nothing.
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(limits.Begin(key, now - seconds(i)).refused.has_value()) << i;
  }
  EXPECT_TRUE(limits.Begin(key, now - seconds(100)).refused.has_value());
}

// --- places of connections -----------------------------------------------------------------------

class Room {
 public:
  Room(uint64_t seed, ConnectionLimits limits) : random_(seed), limits_(limits) {}

  void Step() {
    now_ += milliseconds(1 + random_() % 50);
    const uint64_t what = random_() % 10;
    if (what < 6) {
      Come(absl::StrCat("10.0.0.", random_() % 5), false);
    } else if (what == 6) {
      Come("127.0.0.1", true);
    } else if (!connections_.empty()) {
      ConnectionView& one = connections_[random_() % connections_.size()];
      if (what == 7) {
        connections_.erase(connections_.begin() + (&one - connections_.data()));
      } else {
        one.is_waiting = !one.is_waiting;
        one.since = now_;
      }
    }
  }

 private:
  size_t Of(const std::string& address) const {
    return static_cast<size_t>(
        std::count_if(connections_.begin(), connections_.end(),
                      [&](const ConnectionView& one) { return one.address == address; }));
  }
  bool SomebodyWaits(const std::string& address) const {
    return std::any_of(connections_.begin(), connections_.end(), [&](const ConnectionView& one) {
      return one.is_waiting && (address.empty() || one.address == address);
    });
  }

  void Come(const std::string& address, bool is_loopback) {
    const RoomDecision decision = Admit(connections_, limits_, address, is_loopback);
    const bool is_full = !is_loopback && Of(address) >= limits_.per_address_max;
    EXPECT_EQ(decision.address_is_full, is_full);
    if (decision.leaves.has_value()) {
      ASSERT_LT(*decision.leaves, connections_.size());
      const ConnectionView leaver = connections_[*decision.leaves];
      EXPECT_TRUE(leaver.is_waiting) << "an answer that is on its way is not cut off";
      EXPECT_TRUE(decision.taken) << "nobody leaves for nothing";
      const bool own = is_full || (Of(address) > 0 && SomebodyWaits(address));
      for (const ConnectionView& one : connections_) {
        if (!one.is_waiting || (own && one.address != address)) continue;
        EXPECT_LE(leaver.since, one.since) << "another one has waited longer";
      }
      if (own) {
        EXPECT_EQ(leaver.address, address) << "who has places gives back one of them";
      }
      connections_.erase(connections_.begin() + static_cast<long>(*decision.leaves));
    }
    if (!decision.taken) {
      EXPECT_FALSE(SomebodyWaits(is_full ? address : ""))
          << "refused while somebody waits who could leave";
      // An address without a place is refused only where all places are at work.
      if (Of(address) == 0) {
        EXPECT_EQ(connections_.size(), limits_.all_max);
      }
      return;
    }
    connections_.push_back({address, random_() % 2 == 0, now_});
    EXPECT_LE(connections_.size(), limits_.all_max);
    if (!is_loopback) {
      EXPECT_LE(Of(address), limits_.per_address_max);
    }
  }

  std::mt19937_64 random_;
  const ConnectionLimits limits_;
  std::vector<ConnectionView> connections_;
  std::chrono::steady_clock::time_point now_{seconds(1000)};
};

TEST(ConnectionRoomProperty, PlacesAreBoundedAndGivenToThoseWhoWork) {
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    std::mt19937_64 random(seed);
    ConnectionLimits limits;
    limits.all_max = 1 + random() % 24;
    limits.per_address_max = 1 + random() % limits.all_max;
    limits.reserved = random() % (limits.all_max + 1);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", limits.all_max, ", ", limits.per_address_max,
                              ", ", limits.reserved));
    Room room(seed, limits);
    for (int step = 0; step < 400; ++step) {
      room.Step();
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// --- stored answers ------------------------------------------------------------------------------

struct StoredModel {
  struct Turn {
    std::string id, tenant, holder;
    size_t bytes;
  };
  std::list<Turn> turns;  // the most recently used first
  size_t turns_max, bytes_max;

  std::list<Turn>::iterator Of(const std::string& id, const std::string& tenant) {
    return std::find_if(turns.begin(), turns.end(), [&](const Turn& turn) {
      return turn.id == id && (tenant.empty() || turn.tenant == tenant);
    });
  }
  size_t Bytes() const {
    size_t bytes = 0;
    for (const Turn& turn : turns) bytes += turn.bytes;
    return bytes;
  }
  void Put(const Turn& turn) {
    if (const auto before = Of(turn.id, ""); before != turns.end()) turns.erase(before);
    if (turns_max == 0 || turn.bytes > bytes_max) return;
    turns.push_front(turn);
    while (turns.size() > turns_max || Bytes() > bytes_max) Leave(turns.size() > turns_max);
  }
  // The least recently used of a tenant that none of its holder has more than, of a holder that no
  // other has more than.
  void Leave(bool by_number) {
    std::map<std::string, size_t> of_holder;
    std::map<std::pair<std::string, std::string>, size_t> of_tenant;
    for (const Turn& turn : turns) {
      of_holder[turn.holder] += by_number ? 1 : turn.bytes;
      of_tenant[{turn.holder, turn.tenant}] += by_number ? 1 : turn.bytes;
    }
    const auto held = [&](const Turn& turn) {
      return std::pair(of_holder[turn.holder], of_tenant[{turn.holder, turn.tenant}]);
    };
    std::pair<size_t, size_t> most;
    for (const Turn& turn : turns) most = std::max(most, held(turn));
    const auto leaves = std::find_if(turns.rbegin(), turns.rend(),
                                     [&](const Turn& turn) { return held(turn) == most; });
    turns.erase(std::prev(leaves.base()));
  }
  bool Use(const std::string& id, const std::string& tenant) {
    const auto found = Of(id, tenant);
    if (found == turns.end()) return false;
    turns.splice(turns.begin(), turns, found);
    return true;
  }
};

TEST(ResponseStoreProperty, KeepsWhatAListWouldKeep) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const auto messages = std::make_shared<const std::string>("[]");
    StoredModel model{{}, random() % 9, 20 + random() % 300};
    ResponseStore store(model.turns_max, model.bytes_max);
    for (int step = 0; step < 300; ++step) {
      const std::string id = absl::StrCat("resp_", random() % 12);
      const std::string tenant = absl::StrCat("t", random() % 3);
      switch (random() % 5) {
        case 0:
        case 1: {
          ResponseStore::Turn turn{tenant, std::make_shared<const std::string>(random() % 60, 'b'),
                                   messages, 1, absl::StrCat("h", random() % 3)};
          model.Put({id, tenant, turn.holder, turn.bytes()});
          store.Put(id, std::move(turn));
          break;
        }
        case 2: {
          const ResponseStore::Turn* found = store.Find(id, tenant);
          ASSERT_EQ(found != nullptr, model.Use(id, tenant));
          if (found != nullptr) {
            EXPECT_EQ(found->tenant, tenant);
          }
          break;
        }
        case 3: {
          const auto found = model.Of(id, tenant);
          ASSERT_EQ(store.Erase(id, tenant), found != model.turns.end());
          if (found != model.turns.end()) model.turns.erase(found);
          break;
        }
        default: {
          if (random() % 8 != 0) break;
          const size_t before = model.turns.size(), bytes = model.Bytes();
          model.turns.remove_if([&](const auto& turn) { return turn.tenant == tenant; });
          const auto dropped =
              store.DropIf([&](const ResponseStore::Turn& turn) { return turn.tenant == tenant; });
          EXPECT_EQ(dropped.turns, before - model.turns.size());
          EXPECT_EQ(dropped.bytes, bytes - model.Bytes());
        }
      }
      ASSERT_EQ(store.turns(), model.turns.size());
      ASSERT_EQ(store.bytes(), model.Bytes());
    }
  }
}

// Erasures, rules that change and requests under way: what should be gone is never found.
TEST(StoredAnswersProperty, NothingIsFoundThatItsRuleForbids) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    StoredAnswers answers;
    const auto text = std::make_shared<const std::string>("[]");
    const std::vector<std::string> tenants = {"law", "art", "lab"};
    std::map<std::string, uint64_t> retention_s;
    uint64_t now = 1'700'000'000'000;
    struct Kept {
      std::string owner;
      uint64_t since;
    };
    std::map<std::string, Kept> kept;
    std::map<std::string, uint64_t> erasures;
    std::map<std::string, uint64_t> begun;  // a request under way of each tenant
    std::map<std::string, uint64_t> begun_erasures;
    const auto is_old = [&](const Kept& one) {
      return std::any_of(retention_s.begin(), retention_s.end(), [&](const auto& rule) {
        return OwnerOfTenant(rule.first) == one.owner && one.since + rule.second * 1000 <= now;
      });
    };
    for (int step = 0; step < 200; ++step) {
      now += random() % 200'000;
      const std::string tenant = tenants[random() % tenants.size()];
      const std::string owner = OwnerOfTenant(tenant);
      switch (random() % 6) {
        case 0:
          begun[owner] = answers.Begin();
          begun_erasures[owner] = erasures[owner];
          break;
        case 1: {
          if (!begun.contains(owner)) break;
          const std::string id = absl::StrCat("resp_", step);
          answers.Put(id, {owner, text, text, 0}, begun[owner], now);
          const bool is_late = begun_erasures[owner] < erasures[owner];
          const bool may = !retention_s.contains(tenant) || retention_s[tenant] > 0;
          if (!is_late && may) kept[id] = {owner, now};
          EXPECT_EQ(answers.Find(id, owner, now).has_value(), !is_late && may);
          break;
        }
        case 2: {
          retention_s[tenant] = random() % 4 == 0 ? 0 : random() % 1'000;
          std::map<std::string, v1::TenantLimits> rules;
          for (const auto& [name, s] : retention_s) {
            rules[name].set_name(name);
            rules[name].set_retention_s(static_cast<uint32_t>(s));
          }
          answers.SetRules(RetentionRules(seconds(0), rules), now);
          // What a rule removed stays gone, whatever the next one says.
          std::erase_if(kept, [&](const auto& one) { return is_old(one.second); });
          break;
        }
        case 3:
          if (random() % 4 != 0) break;
          answers.EraseOf(owner);
          ++erasures[owner];
          std::erase_if(kept, [&](const auto& one) { return one.second.owner == owner; });
          break;
        case 4:
          answers.Purge(now);
          std::erase_if(kept, [&](const auto& one) { return is_old(one.second); });
          break;
        default:
          for (const auto& [id, one] : kept) {
            ASSERT_EQ(answers.Find(id, one.owner, now).has_value(), !is_old(one)) << id;
            EXPECT_FALSE(answers.Find(id, OwnerOfTenant("other"), now).has_value());
          }
      }
    }
  }
}

// --- JSON ----------------------------------------------------------------------------------------

// How deep it is, and the sum of the squares of its objects' members.
struct Shape {
  size_t depth = 0;
  size_t squares = 0;
};
Shape ShapeOf(const nlohmann::json& value) {
  Shape shape;
  if (!value.is_structured()) return shape;
  for (const auto& one : value) {
    const Shape inner = ShapeOf(one);
    shape.depth = std::max(shape.depth, inner.depth);
    shape.squares += inner.squares;
  }
  ++shape.depth;
  if (value.is_object()) shape.squares += value.size() * value.size();
  return shape;
}

nlohmann::json SomeJson(std::mt19937_64& random, int deep) {
  static const char* const kTexts[] = {"{",  "[[[",   "\"", "\\",     "a:b",
                                       "}]", "\\\"{", "\n", "\u00e9", ""};
  switch (deep <= 0 ? random() % 3 : random() % 6) {
    case 0:
      return kTexts[random() % std::size(kTexts)];
    case 1:
      return random() % 100;
    case 2:
      return nullptr;
    case 3:
    case 4: {
      auto object = nlohmann::json::object();
      for (uint64_t i = random() % 5; i > 0; --i) {
        object[absl::StrCat(kTexts[random() % std::size(kTexts)], i)] = SomeJson(random, deep - 1);
      }
      return object;
    }
    default: {
      auto list = nlohmann::json::array();
      for (uint64_t i = random() % 4; i > 0; --i) list.push_back(SomeJson(random, deep - 1));
      return list;
    }
  }
}

TEST(BoundedJsonProperty, IsRefusedJustWhereItIsTooDeep) {
  for (uint64_t seed = 1; seed <= 2'000; ++seed) {
    std::mt19937_64 random(seed);
    const nlohmann::json value = SomeJson(random, 9);
    const Shape shape = ShapeOf(value);
    for (const int indent : {-1, 1}) {
      const std::string text = value.dump(indent);
      for (size_t most = shape.depth > 2 ? shape.depth - 2 : 0; most <= shape.depth + 1; ++most) {
        Json read;
        const auto error = ParseBoundedJson(text, most, &read);
        ASSERT_EQ(error.has_value(), shape.depth > most) << "seed " << seed << "\n" << text;
        if (error.has_value()) {
          EXPECT_EQ(error->code, "json_too_deep");
          EXPECT_EQ(error->http_status, 400);
        } else {
          EXPECT_EQ(nlohmann::json(read), value);
        }
      }
    }
  }
}

TEST(BoundedJsonProperty, ObjectsAreBoundedTogether) {
  for (const size_t members : {1'000u, 2'000u, 4'096u}) {
    const size_t fit = kSquaredMembersMax / (members * members);
    std::string object = "{";
    for (size_t i = 0; i < members; ++i)
      absl::StrAppend(&object, i == 0 ? "" : ",", "\"", i, "\":0");
    object += "}";
    for (const size_t objects : {fit, fit + 1}) {
      std::string text = "[";
      for (size_t i = 0; i < objects; ++i) absl::StrAppend(&text, i == 0 ? "" : ",", object);
      text += "]";
      EXPECT_EQ(ShapeOfJson(text, 8) == JsonShape::kFine, objects == fit) << members;
    }
  }
}

TEST(BoundedJsonProperty, DamagedTextIsAnErrorThatSaysWhere) {
  int damaged = 0;
  for (uint64_t seed = 1; seed <= 2'000; ++seed) {
    std::mt19937_64 random(seed);
    std::string text = SomeJson(random, 5).dump();
    const size_t at = random() % text.size();
    text[at] = static_cast<char>(random() % 256);
    if (random() % 3 == 0) text.resize(at);
    Json read;
    const auto error = ParseBoundedJson(text, 1'000, &read);
    if (!error.has_value()) continue;
    ++damaged;
    EXPECT_EQ(error->http_status, 400);
    EXPECT_EQ(error->code, "invalid_json");
    EXPECT_NE(error->message.find(absl::StrCat("of ", text.size(), ".")), std::string::npos)
        << error->message;
  }
  EXPECT_GT(damaged, 1'000);
  for (const char* text : {"1e999", "-1e999", R"({"a":1e400})"}) {
    Json read;
    const auto error = ParseBoundedJson(text, 16, &read);
    ASSERT_TRUE(error.has_value()) << text;
    EXPECT_NE(error->message.find("too large"), std::string::npos) << error->message;
  }
}

}  // namespace
}  // namespace macrame::agentd
