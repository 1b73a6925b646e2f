#include "discovery/beacons/active_alarms.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::discovery {
namespace {

v1::Reason Trouble(const std::string& text) { return MakeReason(reasons::kPortTaken, text); }

std::vector<std::string> Texts(const ActiveAlarms& alarms) {
  std::vector<std::string> texts;
  for (const v1::Reason& reason : alarms.Problems()) texts.push_back(reason.message());
  return texts;
}

using Lines = std::vector<std::string>;

TEST(ActiveAlarms, ATroubleIsThereFromItsBeginToItsEnd) {
  ActiveAlarms alarms;
  EXPECT_EQ(Texts(alarms), Lines{});
  alarms.Raise("send/en0", Trouble("no route"));
  alarms.Raise("bind", Trouble("taken"));
  alarms.Raise("send/en0", Trouble("no buffer"));
  EXPECT_EQ(Texts(alarms), (Lines{"taken", "no buffer"})) << "the newest text of each";
  alarms.Clear("send/en0");
  alarms.Clear("send/en0");
  alarms.Clear("never");
  EXPECT_EQ(Texts(alarms), Lines{"taken"});
}

TEST(ActiveAlarms, AFloodOfTroublesIsBoundedAndKnownOnesAreStillRenewed) {
  ActiveAlarms alarms;
  for (size_t i = 0; i < 10 * kProblemsMax; ++i) {
    alarms.Raise(absl::StrCat("peer/", i), Trouble("first"));
  }
  EXPECT_EQ(alarms.Problems().size(), kProblemsMax);
  alarms.Raise("peer/0", Trouble("again"));
  EXPECT_EQ(alarms.Problems()[0].message(), "again");
  alarms.Clear("peer/0");
  alarms.Raise("another", Trouble("there is room again"));
  EXPECT_EQ(Texts(alarms)[0], "there is room again");
}

}  // namespace
}  // namespace macrame::discovery
