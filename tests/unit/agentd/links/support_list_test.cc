#include "agentd/links/support_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::agentd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kGood[] = R"(date: 2026-03-01
entries:
  - subject: rdma over thunderbolt
    machine_models: [Mac16,8, Mac16,9]
    chips: [Apple M4 Pro]
    os_version_min: "26.2"
    supported: true
    source: release notes
  - subject: jaccl ring
    supported: false
)";

TEST(SupportList, WhatIsSaidOfAMachineIsRead) {
  const auto list = ParseSupportList(kGood, "support.yaml");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->date(), "2026-03-01");
  ASSERT_EQ(list->entries_size(), 2);
  EXPECT_EQ(list->entries(0).subject(), "rdma over thunderbolt");
  EXPECT_THAT(list->entries(0).machine_models(), ElementsAre("Mac16", "8", "Mac16", "9"));
  EXPECT_THAT(list->entries(0).chips(), ElementsAre("Apple M4 Pro"));
  EXPECT_EQ(list->entries(0).os_version_min(), "26.2");
  EXPECT_TRUE(list->entries(0).supported());
  EXPECT_FALSE(list->entries(1).supported());
  EXPECT_EQ(list->entries(1).mlx_version_min(), "");
}

// Triggers of "not tried again": what is known of a machine now, and since when.
TEST(SupportList, TheOneThatIsShippedIsDatedAndKnowsTheChipsOfThunderbolt5) {
  const v1::SupportList& list = ShippedSupportList();
  EXPECT_GE(list.date(), "2026-11-28");
  std::set<std::string> chips;
  for (const v1::SupportEntry& entry : list.entries()) {
    EXPECT_EQ(entry.subject(), "rdma");
    EXPECT_FALSE(entry.source().empty()) << "where it is written";
    EXPECT_FALSE(entry.os_version_min().empty());
    EXPECT_FALSE(entry.chips().empty()) << "an entry without chips would speak for every Mac";
    for (const std::string& chip : entry.chips()) {
      if (entry.supported()) chips.insert(chip);
    }
  }
  EXPECT_TRUE(chips.contains("Apple M4 Pro") && chips.contains("Apple M3 Ultra"));
  for (const char* older : {"Apple M1 Ultra", "Apple M3 Max", "Apple M4", "Apple M5"}) {
    EXPECT_FALSE(chips.contains(older)) << older;
  }
}

TEST(SupportList, WhatCantBeReadIsNamedWithTheFile) {
  const std::string entry = "date: 2026-03-01\nentries:\n  - ";
  const std::vector<std::string> bad = {
      "",
      "just text",
      "- a\n- b",
      "entries: []",
      "date: 1.3.2026\nentries: []",
      "date: 2026/03/01",
      "date: 2026-0a-01",
      "date: [2026]",
      absl::StrCat(entry, "supported: true"),  // of what?
      absl::StrCat(entry, "subject: rdma"),    // is it?
      absl::StrCat(entry, "subject: rdma\n    supported: maybe"),
      absl::StrCat(entry, "subject: [a]\n    supported: true"),
      absl::StrCat(entry, "subject: a\n    supported: true\n    chips: M4"),
      absl::StrCat(entry, "just text"),
      "date: 2026-03-01\nentries: {a: b}",
      "date: \"2026",
      std::string(kSupportListBytesMax + 1, '#'),
      std::string(100'000, '['),
      std::string(50'000, '-'),
  };
  for (const std::string& text : bad) {
    const auto list = ParseSupportList(text, "/etc/support.yaml");
    ASSERT_FALSE(list.ok()) << text.substr(0, 80);
    EXPECT_EQ(list.status().code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 80);
    EXPECT_THAT(std::string(list.status().message()), StartsWith("/etc/support.yaml: "));
  }
}

TEST(SupportList, ItHasSoManyEntriesAndNoMore) {
  std::string text = "date: 2026-03-01\nentries:\n";
  for (int i = 0; i < kSupportListEntriesMax; ++i) {
    absl::StrAppend(&text, "  - {subject: s", i, ", supported: true}\n");
  }
  const auto most = ParseSupportList(text, "s");
  ASSERT_TRUE(most.ok()) << most.status();
  EXPECT_EQ(most->entries_size(), kSupportListEntriesMax);
  text += "  - {subject: one more, supported: true}\n";
  EXPECT_FALSE(ParseSupportList(text, "s").ok());
}

TEST(SupportList, AFileThatIsMissingIsTold) {
  EXPECT_TRUE(absl::IsNotFound(ReadSupportList(FreshFolder() + "/no/such.yaml").status()));
  const std::string path = FreshFolder() + "/links.yaml";
  std::ofstream(path) << kGood;
  const auto list = ReadSupportList(path);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->entries_size(), 2);
  std::ofstream(path, std::ios::app) << std::string(kSupportListBytesMax, '#');
  EXPECT_THAT(std::string(ReadSupportList(path).status().message()), HasSubstr("256 KiB"));
}

TEST(SupportList, DamagedFilesNeverCrash) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string text = kGood;
    for (int change = 0; change < 1 + static_cast<int>(random() % 6); ++change) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          text.erase(at, random() % 20);
          break;
        default:
          text.insert(at, 1, "[]{}:-#&*!|>'\"%@`\n\t"[random() % 19]);
      }
      if (text.empty()) text = "x";
    }
    const auto list = ParseSupportList(text, "s");
    if (list.ok()) {
      for (const v1::SupportEntry& entry : list->entries()) {
        EXPECT_LE(entry.subject().size(), text.size());
      }
    }
  }
}

}  // namespace
}  // namespace macrame::agentd
