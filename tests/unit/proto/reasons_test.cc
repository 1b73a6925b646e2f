#include "proto/reasons.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>
#include <sstream>
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

// A name that was cut to a length ends within a character; the reader of the reason sees the rest.
TEST(Reasons, WhatIsCutWithinACharacterIsReadAllTheSame) {
  const std::string name = std::string("caf\xC3\xA9").substr(0, 4);
  const absl::Status status = ReasonStatus(absl::StatusCode::kNotFound, "MODEL_NOT_LOADED",
                                           "no model '" + name + "' is loaded", name);
  const v1::Reason back = ReasonOf(status);
  EXPECT_EQ(back.code(), "MODEL_NOT_LOADED");
  EXPECT_EQ(back.message(), "no model 'caf\uFFFD' is loaded");
  EXPECT_EQ(back.node_id(), "caf\uFFFD");
}

TEST(Reasons, AStatusWithoutOneKeepsItsText) {
  const v1::Reason reason = ReasonOf(absl::UnavailableError("socket closed"));
  EXPECT_EQ(reason.code(), "INTERNAL");
  EXPECT_EQ(reason.message(), "socket closed");
}

// cli/LINKS.md tells people what the codes of links mean: from the first to the last of them.
TEST(Reasons, ThePageAboutLinksNamesEachOfTheirCodes) {
  std::ifstream file("cli/LINKS.md");
  std::stringstream page;
  page << file.rdbuf();
  ASSERT_FALSE(page.str().empty());
  bool is_of_links = false;
  for (const ReasonCode& code : AllReasonCodes()) {
    is_of_links = is_of_links || code.code == "NOT_MAC";
    if (code.code == "BAD_REQUEST") break;
    if (!is_of_links) continue;
    const std::string name(code.code);
    EXPECT_NE(page.str().find("| `" + name + "` | " + std::string(code.meaning)), std::string::npos)
        << name;
  }
}

TEST(ReasonsDeathTest, AnUnlistedCodeIsABug) {
  EXPECT_DEATH(MakeReason("NO_SUCH_CODE", "x"), "not listed");
}

}  // namespace
}  // namespace macrame
