// The checks and the cache before the page, against small models, over many seeds.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agentd/dashboard/assets.h"
#include "agentd/dashboard/request_checks.h"
#include "agentd/dashboard/snapshot_cache.h"

namespace macrame::agentd::dashboard {
namespace {

using std::chrono::milliseconds;

// --- whose page asks -----------------------------------------------------------------------------

// Browsers are believed where they say it; what they do not say counts by the origin alone.
TEST(OtherSites, EachHeaderByItself) {
  struct Row {
    const char* fetch_site;
    const char* origin;
    const char* host;
    bool is_other;
  };
  for (const Row& row : {
           Row{"SAME-ORIGIN", "", "a:8000", false},
           Row{"None", "", "a:8000", false},
           // The browser knows better than the fields that a proxy may have written anew.
           Row{"same-origin", "http://elsewhere", "a:8000", false},
           Row{"cross-site", "http://a:8000", "a:8000", true},
           Row{"same-origin, cross-site", "", "a:8000", true},
           Row{"nonsense", "http://a:8000", "a:8000", true},
           Row{" ", "http://a:8000", "a:8000", true},
           Row{"", "http://a:8000", "A:8000", false},
           Row{"", "HTTP://a:8000", "a:8000", false},
           Row{"", "http://[::1]:8000", "[::1]:8000", false},
           Row{"", "http://a:8000/", "a:8000", true},
           Row{"", "http://a:8000/x", "a:8000", true},
           Row{"", "http://user@a:8000", "a:8000", true},
           Row{"", "http://a:8000.evil.example", "a:8000", true},
           Row{"", "http://evil.example#a:8000", "a:8000", true},
           Row{"", "ftp://a:8000", "a:8000", true},
           Row{"", "a:8000", "a:8000", true},
           Row{"", "chrome-extension://abcdef", "a:8000", true},
           Row{"", "http://", "", true},
           Row{"", "http://a", "", true},
       }) {
    EXPECT_EQ(IsFromAnotherSite(row.fetch_site, row.origin, row.host), row.is_other)
        << row.fetch_site << " | " << row.origin << " | " << row.host;
  }
}

// An origin passes only where it is the host behind a scheme, whatever bytes are in either.
TEST(OtherSites, NoOtherOriginPassesAsThisHost) {
  for (uint64_t seed = 1; seed <= 20'000; ++seed) {
    std::mt19937_64 random(seed);
    const std::string host = "node.local:8000";
    std::string origin = "http://" + host;
    for (uint64_t i = 1 + random() % 2; i > 0; --i) {
      const size_t at = random() % origin.size();
      const char c = "ahnoz.:/@#?[]8 %\\\x7f\xc3"[random() % 19];
      if (random() % 2 == 0) {
        origin[at] = c;
      } else {
        origin.insert(at, 1, c);
      }
    }
    if (IsFromAnotherSite("", origin, host)) continue;
    const std::string lower = absl::AsciiStrToLower(origin);
    EXPECT_TRUE(lower == "http://" + host || lower == "https://" + host) << origin;
  }
}

// --- what the browser has already ----------------------------------------------------------------

TEST(Etags, AListHasTheTagOrNot) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    std::mt19937_64 random(seed);
    const std::string wanted = "\"abc\"";
    bool has_it = false;
    std::vector<std::string> tags;
    for (uint64_t i = random() % 5; i > 0; --i) {
      static const char* const kTags[] = {"\"abc\"",   "W/\"abc\"",  "\"abcd\"", "\"ab\"", "abc",
                                          "w/\"abc\"", "W/ \"abc\"", "\"ABC\"",  "\"\"",   "\"*\""};
      const size_t which = random() % std::size(kTags);
      has_it = has_it || which < 2;
      tags.push_back(
          absl::StrCat(random() % 2 == 0 ? " " : "", kTags[which], random() % 2 == 0 ? "\t" : ""));
    }
    EXPECT_EQ(EtagMatches(absl::StrJoin(tags, ","), wanted), has_it) << absl::StrJoin(tags, ",");
    EXPECT_TRUE(EtagMatches(absl::StrJoin(tags, ",") + (tags.empty() ? "*" : ", *"), wanted));
  }
}

TEST(Etags, EveryFileIsKnownByItsOwn) {
  for (const Asset& one : AllAssets()) {
    for (const Asset& other : AllAssets()) {
      EXPECT_EQ(EtagMatches(one.etag, other.etag), &one == &other);
    }
    EXPECT_FALSE(ContentTypeOf(one).empty());
    EXPECT_NE(ContentTypeOf(one), "application/octet-stream") << one.name << " has no type";
  }
}

// --- the newest status ---------------------------------------------------------------------------

// What of a status counts as new, as the test knows it.
struct Shown {
  std::string name;
  uint64_t dead_for_ms = 0;
  bool operator==(const Shown&) const = default;
};

v1::ClusterStatus StatusOf(const Shown& shown, uint64_t alive_age_ms) {
  v1::ClusterStatus status;
  status.set_cluster_name(shown.name);
  v1::NodeStatus& alive = *status.add_nodes();
  alive.mutable_identity()->set_node_id("alive");
  alive.set_state(v1::NODE_STATE_ALIVE);
  alive.set_last_heartbeat_age_ms(alive_age_ms);
  v1::NodeStatus& dead = *status.add_nodes();
  dead.mutable_identity()->set_node_id("dead");
  dead.set_state(v1::NODE_STATE_DEAD);
  dead.set_last_heartbeat_age_ms(shown.dead_for_ms);
  return status;
}

// Pages and answers come in any order: one question at a time, a revision for each change, and
// pages never go back to one that they have seen.
TEST(SnapshotCacheProperty, RevisionsCountChangesAndQuestionsAreOneAtATime) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    SnapshotCache cache;
    SnapshotCache::Time now{std::chrono::hours(1)};
    std::optional<SnapshotCache::Time> asked, taken;
    std::optional<Shown> shown;
    uint64_t revision = 0;
    for (int step = 0; step < 150; ++step) {
      now += milliseconds(random() % 700 + (random() % 20 == 0 ? 6'000 : 0));
      const bool is_fresh = taken.has_value() && now - *taken < SnapshotCache::kHolds;
      EXPECT_EQ(cache.IsFresh(now), is_fresh);
      const bool is_asked = asked.has_value() && now - *asked < SnapshotCache::kPatience;
      ASSERT_EQ(cache.ShouldAsk(now), !is_fresh && !is_asked) << "seed " << seed;
      if (!is_fresh && !is_asked) asked = now;
      if (!asked.has_value() || random() % 3 == 0) continue;
      const Shown next = {absl::StrCat("lab-", random() % 3), (random() % 2) * 1'000};
      cache.Take(StatusOf(next, random() % 2'000), now);
      asked.reset();
      taken = now;
      if (shown != next) ++revision;
      shown = next;
      ASSERT_NE(cache.latest(), nullptr);
      EXPECT_EQ(cache.latest()->revision, revision) << "seed " << seed;
      const auto json = nlohmann::json::parse(cache.latest()->json);
      EXPECT_EQ(json["cluster_name"], next.name);
    }
  }
}

TEST(SnapshotCacheProperty, TagsTellStatusesApartAndAreOneLine) {
  std::set<std::string> tags;
  SnapshotCache cache;
  SnapshotCache::Time now{std::chrono::hours(1)};
  for (int i = 0; i < 500; ++i) {
    now += milliseconds(1'000);
    cache.Take(StatusOf({absl::StrCat("lab\n\r", i), 0}, 5), now);
    const auto snapshot = cache.latest();
    EXPECT_TRUE(tags.insert(snapshot->etag).second) << i;
    EXPECT_TRUE(EtagMatches(snapshot->etag, snapshot->etag));
    EXPECT_EQ(snapshot->json.find_first_of("\r\n"), std::string::npos)
        << "it is the data of one event";
  }
  // One that comes back is the same to who kept it.
  const std::string tag = cache.latest()->etag;
  cache.Take(StatusOf({"other", 0}, 5), now);
  cache.Take(StatusOf({"lab\n\r499", 0}, 77), now);
  EXPECT_EQ(cache.latest()->etag, tag);
  EXPECT_EQ(cache.latest()->revision, 502u);
}

// Who holds a snapshot while another comes keeps the one that it began to send.
TEST(SnapshotCacheProperty, ASnapshotThatIsBeingSentStaysAsItIs) {
  SnapshotCache cache;
  const SnapshotCache::Time now{std::chrono::hours(1)};
  cache.Take(StatusOf({"one", 0}, 0), now);
  const auto held = cache.latest();
  const std::string text = held->json;
  for (int i = 0; i < 10; ++i) cache.Take(StatusOf({absl::StrCat("more-", i), 0}, 0), now);
  EXPECT_EQ(held->json, text);
  EXPECT_EQ(held->revision, 1u);
  EXPECT_EQ(cache.latest()->revision, 11u);
}

}  // namespace
}  // namespace macrame::agentd::dashboard
