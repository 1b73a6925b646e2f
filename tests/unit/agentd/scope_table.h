#pragma once

// The tables of SECURITY.md, "What each scope may learn and do", as tests try them.

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace macrame::tests {

// A cell's word by the head of its column.
using ScopeRow = std::map<std::string, std::string>;

// The row of each subject ("GET /metrics", "GetStatus") of the table whose first column is `first`.
inline std::map<std::string, ScopeRow> ReadScopeTable(const std::string& first) {
  std::ifstream file(MACRAME_SOURCE "/SECURITY.md");
  std::stringstream text;
  text << file.rdbuf();
  std::map<std::string, ScopeRow> rows;
  std::vector<std::string> heads;
  for (const absl::string_view line : absl::StrSplit(text.str(), '\n')) {
    if (!absl::StartsWith(line, "|")) {
      heads.clear();
      continue;
    }
    std::vector<std::string> cells;
    for (const absl::string_view cell : absl::StrSplit(line, '|')) {
      cells.push_back(absl::StrReplaceAll(absl::StripAsciiWhitespace(cell), {{"`", ""}}));
    }
    // What stands before the first bar and behind the last one.
    cells.erase(cells.begin());
    cells.pop_back();
    if (heads.empty() && cells[0] == first) {
      heads = cells;
    } else if (!heads.empty() && !absl::StartsWith(cells[0], "---")) {
      EXPECT_EQ(cells.size(), heads.size()) << line;
      for (const absl::string_view subject : absl::StrSplit(cells[0], ", ")) {
        ScopeRow& row = rows[std::string(subject)];
        EXPECT_TRUE(row.empty()) << subject << " has two rows";
        for (size_t i = 1; i < std::min(cells.size(), heads.size()); ++i) row[heads[i]] = cells[i];
      }
    }
  }
  return rows;
}

}  // namespace macrame::tests
