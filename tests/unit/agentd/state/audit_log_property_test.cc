// What stays of an audit log when crashes, damage and rotation meet it, over many seeds.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/state/audit_log.h"
#include "tests/support/fake_dispatcher.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::agentd {
namespace {

class AuditLogProperty : public ::testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override { folder_ = FreshFolder(); }

  std::string Path(int index = 0) const {
    return index == 0 ? folder_ + "/audit.log" : absl::StrCat(folder_, "/audit.log.", index);
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }
  AuditEntry Entry(std::mt19937& dice) {
    const std::vector<std::string> hostile = {
        "model \"m\"", "a\nb\r\n",         std::string("nul\0x", 5),
        "\xff\xfe",    "{\"sequence\":1}", std::string(300, 'x')};
    return {0, "local", "LoadModel", hostile[dice() % hostile.size()], "socket", "ok", 0};
  }
  // Sequences of all lines, read page by page.
  static std::vector<uint64_t> Sequences(const AuditLog& log, uint32_t page) {
    std::vector<uint64_t> all;
    v1::ReadAuditRequest request;
    request.set_from_sequence(1);
    request.set_limit(page);
    for (int pages = 0; pages < 10'000; ++pages) {
      const v1::ReadAuditResponse response = log.Read(request);
      for (const std::string& line : response.lines()) {
        const auto read = ReadAuditLine(line);
        if (read.has_value()) all.push_back(read->sequence);
      }
      if (response.next_sequence() == 0) break;
      EXPECT_GT(response.next_sequence(), request.from_sequence());
      request.set_from_sequence(response.next_sequence());
    }
    return all;
  }

  transport::FakeDispatcher clock_;
  std::string folder_;
};

// A crash leaves any part of the last write. Whatever was whole before it stays, the chain holds,
// and the next entry goes on from it.
TEST_P(AuditLogProperty, ACrashAtAnyByteLosesTheLastLineAtMost) {
  std::mt19937 dice(GetParam());
  uint64_t written = 0;
  for (int run = 0; run < 12; ++run) {
    {
      AuditLog log(clock_, folder_, 1500);
      EXPECT_EQ(log.trouble(), "");
      const v1::VerifyAuditResponse check = log.Verify();
      EXPECT_EQ(check.broken_at(), "") << check.broken_why();
      for (uint32_t entry = 0; entry < 1 + dice() % 6; ++entry) log.Add(Entry(dice));
      EXPECT_EQ(log.Verify().broken_at(), "");
      const uint64_t now = log.Verify().first_sequence() + log.Verify().entries() - 1;
      EXPECT_GT(now, written) << "numbers only rise";
      written = now;
    }
    const std::string text = Read(Path());
    const size_t last_line = text.rfind('\n', text.size() - 2) + 1;  // npos + 1 is 0
    if (dice() % 2 == 0) {
      const size_t cut = last_line + dice() % (text.size() - last_line);
      Write(Path(), text.substr(0, cut));
      if (cut + 1 < text.size()) --written;  // without its newline alone it is still whole
    }
  }
}

TEST_P(AuditLogProperty, PagesOfAnySizeTellEveryLineOnceAndInOrder) {
  std::mt19937 dice(GetParam());
  AuditLog log(clock_, folder_, 2000);
  const uint32_t entries = 1 + dice() % 60;
  for (uint32_t entry = 0; entry < entries; ++entry) log.Add(Entry(dice));
  const v1::VerifyAuditResponse check = log.Verify();
  std::vector<uint64_t> expected;
  for (uint64_t at = 0; at < check.entries(); ++at) expected.push_back(check.first_sequence() + at);
  for (const uint32_t page : {1u, 2u, 7u, 1000u, 0u, ~0u}) {
    EXPECT_EQ(Sequences(log, page), expected) << "pages of " << page;
  }
  EXPECT_EQ(expected.back(), entries);
}

// Any byte of any line that is changed, any line that is taken out or doubled, and any two that
// change places, are noticed.
TEST_P(AuditLogProperty, NothingIsChangedUnnoticed) {
  std::mt19937 dice(GetParam());
  {
    AuditLog log(clock_, folder_);
    for (int entry = 0; entry < 12; ++entry) log.Add(Entry(dice));
    ASSERT_EQ(log.Verify().broken_at(), "");
  }
  const std::string before = Read(Path());
  std::vector<std::string> lines;
  for (size_t at = 0; at < before.size();) {
    const size_t end = before.find('\n', at) + 1;
    lines.push_back(before.substr(at, end - at));
    at = end;
  }
  ASSERT_GE(lines.size(), 3u);
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<std::string> changed = lines;
    const size_t at = dice() % (lines.size() - 1);  // the last may be cut off unnoticed
    const uint32_t how = dice() % 4;
    if (how == 0) {
      std::string& line = changed[at];
      char& byte = line[dice() % (line.size() - 1)];
      byte = static_cast<char>(byte ^ (1 << dice() % 7));
      if (byte == '\n') continue;
    } else if (how == 1) {
      changed.erase(changed.begin() + static_cast<long>(at == 0 ? 1 : at));
    } else if (how == 2) {
      changed.insert(changed.begin() + static_cast<long>(at), changed[at]);
    } else {
      std::swap(changed[at], changed[at + 1]);
    }
    std::string text;
    for (const std::string& line : changed) text += line;
    Write(Path(), text);
    AuditLog log(clock_, folder_, 1 << 20);
    const v1::VerifyAuditResponse check = log.Verify();
    EXPECT_NE(check.broken_at(), "") << "way " << how << ", line " << at;
    EXPECT_NE(check.broken_why(), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, AuditLogProperty, ::testing::Range(1u, 21u));

}  // namespace
}  // namespace macrame::agentd
