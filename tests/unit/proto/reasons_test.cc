#include "proto/reasons.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>

namespace macrame {
namespace {

TEST(Reasons, CodesAreUniqueAndSpelledAlike) {
  std::set<std::string> seen;
  for (const ReasonCode& code : AllReasonCodes()) {
    const std::string name(code.code);
    EXPECT_TRUE(seen.insert(name).second) << name << " stands twice";
    EXPECT_TRUE(std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isupper(c) || std::isdigit(c) || c == '_';
    })) << name;
    EXPECT_FALSE(code.meaning.empty()) << name;
  }
}

TEST(Reasons, AReasonComesWholeThroughAStatus) {
  const v1::Reason sent = MakeReason("MEMORY_SHORT", "node ada lacks 3.1 GiB", "aa11");
  const absl::Status status = ReasonStatus(absl::StatusCode::kFailedPrecondition, sent);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()).find("node ada lacks 3.1 GiB. "), 0u);
  const v1::Reason back = ReasonOf(status);
  EXPECT_EQ(back.code(), "MEMORY_SHORT");
  EXPECT_EQ(back.node_id(), "aa11");
  EXPECT_EQ(back.remedy(), sent.remedy());
}

TEST(Reasons, AStatusWithoutOneKeepsItsText) {
  const v1::Reason reason = ReasonOf(absl::UnavailableError("socket closed"));
  EXPECT_EQ(reason.code(), "INTERNAL");
  EXPECT_EQ(reason.message(), "socket closed");
}

TEST(ReasonsDeathTest, AnUnlistedCodeIsABug) {
  EXPECT_DEATH(MakeReason("NO_SUCH_CODE", "x"), "not listed");
}

}  // namespace
}  // namespace macrame
