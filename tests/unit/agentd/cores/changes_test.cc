#include "agentd/cores/changes.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

TEST(Changes, WhoReadsAChangeLooksAndNobodyElseDoes) {
  Changes changes;
  int links = 0, both = 0, all = 0;
  changes.Read({Change::kLinks}, [&] { ++links; });
  changes.Read({Change::kLinks, Change::kState}, [&] { ++both; });
  changes.ReadAll([&] { ++all; });
  changes.Note(Change::kState);
  EXPECT_EQ(links, 0);
  EXPECT_EQ(both, 1);
  EXPECT_EQ(all, 1);
  changes.Note(Change::kLinks);
  changes.Note(Change::kRanks);
  EXPECT_EQ(links, 1);
  EXPECT_EQ(both, 2);
  EXPECT_EQ(all, 3);
}

}  // namespace
}  // namespace macrame::agentd
