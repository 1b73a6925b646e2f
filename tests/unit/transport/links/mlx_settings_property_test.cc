// What MLX is told about random groups: host files, and the settings of each rank.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/backends.h"
#include "proto/reasons.h"
#include "tests/unit/transport/links/link_snapshots_for_tests.h"
#include "transport/links/judge.h"
#include "transport/links/mlx_settings.h"

namespace macrame::transport {
namespace {

using nlohmann::json;

v1::GroupVerdict RandomGroup(uint32_t seed) {
  std::mt19937 random(seed);
  const int count = 1 + static_cast<int>(random() % 5);
  std::vector<std::pair<int, int>> cables;
  for (int a = 0; a < count; ++a) {
    for (int b = a + 1; b < count; ++b) {
      for (uint32_t left = random() % 4 == 0 ? 0 : 1 + random() % 2; left > 0; --left) {
        cables.emplace_back(a, b);
      }
    }
  }
  v1::LinkSnapshot snapshot = Macs(count, cables, random() % 5 != 0);
  if (random() % 4 == 0) FactsOf(snapshot, 0).set_rdma_enabled(v1::FACT_NO);
  if (random() % 4 == 0) snapshot.set_mesh_nodes_max(2);
  return JudgeLinks(snapshot).group();
}

std::vector<std::string> NamesOf(const v1::GroupVerdict& group) {
  std::vector<std::string> names;
  for (const std::string& id : group.node_ids()) names.push_back("user@" + id);
  return names;
}

// Rank by rank: null, a name or several, as MLX reads a cell.
std::vector<std::string> DevicesOf(const json& cell) {
  if (cell.is_null()) return {};
  if (cell.is_string()) return {cell.get<std::string>()};
  return cell.get<std::vector<std::string>>();
}

TEST(MlxSettingsProperty, AHostFileIsWholeAndInTheOrderOfRanksOrRefusedWithTheReason) {
  int written = 0, refused = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const v1::GroupVerdict group = RandomGroup(seed);
    const std::vector<std::string> names = NamesOf(group);
    for (const std::string& backend : MlxBackendNames()) {
      SCOPED_TRACE(absl::StrCat(seed, " ", backend));
      const auto text = MlxHostfile(group, backend, names);
      if (!text.ok()) {
        ++refused;
        EXPECT_EQ(text.status().code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_NE(ReasonOf(text.status()).code(), "INTERNAL") << text.status();
        EXPECT_NE(std::string(text.status().message())
                      .find(ReasonOf(text.status()).code() == "COORDINATOR" ? "user@" : backend),
                  std::string::npos)
            << text.status();
        continue;
      }
      ++written;
      for (const HostfileFault& fault : CheckHostfile(*text)) {
        // One host alone has nobody to be joined with.
        EXPECT_EQ(names.size(), 1u) << fault.line << ": " << fault.message << "\n" << *text;
      }
      const json hosts = json::parse(*text).at("hosts");
      ASSERT_EQ(hosts.size(), names.size());
      for (size_t rank = 0; rank < hosts.size(); ++rank) {
        EXPECT_EQ(hosts[rank].at("ssh"), names[rank]);
        const json& row = hosts[rank].at("rdma");
        if (backend == "ring") {
          EXPECT_TRUE(row.empty());
          EXPECT_EQ(hosts[rank].at("ips").empty(), names.size() == 1);
          continue;
        }
        for (size_t to = 0; to < row.size(); ++to) {
          const auto& cell =
              group.device_matrix(static_cast<int>(rank)).cells(static_cast<int>(to));
          EXPECT_EQ(DevicesOf(row[to]),
                    std::vector<std::string>(cell.devices().begin(), cell.devices().end()));
        }
      }
    }
  }
  EXPECT_GT(written, 200);
  EXPECT_GT(refused, 200);
}

std::string SettingOf(const MlxEnvironment& environment, const std::string& name) {
  for (const auto& [key, value] : environment.settings) {
    if (key == name) return value;
  }
  return "";
}

TEST(MlxSettingsProperty, AllRanksAreToldTheSameButForTheirNumberAndWhereTheyCall) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const v1::GroupVerdict group = RandomGroup(seed);
    for (const std::string& backend : MlxBackendNames()) {
      SCOPED_TRACE(absl::StrCat(seed, " ", backend));
      const auto first = MlxEnvironmentOf(group, backend, 0, 40000);
      // A host file has one address of rank 0 for all.
      const bool is_each = backend != "ring" && !group.rendezvous_ips().empty();
      EXPECT_EQ(first.ok() && !is_each, MlxHostfile(group, backend, NamesOf(group)).ok());
      if (!first.ok()) continue;
      for (int rank = 0; rank < group.node_ids_size(); ++rank) {
        const auto environment = MlxEnvironmentOf(group, backend, rank, 40000);
        ASSERT_TRUE(environment.ok()) << environment.status();
        EXPECT_EQ(SettingOf(*environment, "MLX_RANK"), std::to_string(rank));
        EXPECT_EQ(environment->files, first->files);
        EXPECT_EQ(SettingOf(*environment, "MLX_JACCL_COORDINATOR"),
                  is_each ? absl::StrCat(group.rendezvous_ips(rank), ":40000")
                          : SettingOf(*first, "MLX_JACCL_COORDINATOR"));
        EXPECT_EQ(SettingOf(*environment, "MLX_JACCL_RING"), backend == "jaccl-ring" ? "1" : "");
      }
      for (const int rank : {-1, group.node_ids_size(), 1000}) {
        EXPECT_EQ(MlxEnvironmentOf(group, backend, rank, 40000).status().code(),
                  absl::StatusCode::kInvalidArgument);
      }
    }
  }
}

TEST(MlxSettingsProperty, NoTwoAddressesOfARingShareAPort) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const v1::GroupVerdict group = RandomGroup(seed);
    const auto environment = MlxEnvironmentOf(group, "ring", 0, 40000);
    if (!environment.ok() || group.node_ids_size() < 2) continue;
    const json hosts = json::parse(environment->files.at(0).second);
    ASSERT_EQ(hosts.size(), static_cast<size_t>(group.node_ids_size()));
    std::set<std::string> ports;
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      const auto& ips = group.ring_addresses(static_cast<int>(rank)).ips();
      ASSERT_EQ(hosts[rank].size(), static_cast<size_t>(ips.size()));
      for (int i = 0; i < ips.size(); ++i) {
        const std::vector<std::string> parts =
            absl::StrSplit(hosts[rank][static_cast<size_t>(i)].get<std::string>(), ':');
        ASSERT_EQ(parts.size(), 2u);
        EXPECT_EQ(parts[0], ips[i]);
        EXPECT_TRUE(ports.insert(parts[1]).second) << parts[1];
      }
    }
  }
}

TEST(MlxSettings, AsManyNamesAsRanksOrNoFile) {
  const v1::GroupVerdict group = JudgeLinks(GoodPair()).group();
  for (const size_t count : {0u, 1u, 3u}) {
    const auto text = MlxHostfile(group, "ring", std::vector<std::string>(count, "a"));
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(text.status().message()).find("2 ranks"), std::string::npos);
  }
  for (const char* name : {"", "JACCL", "mpi", "verbs", "jaccl "}) {
    const auto text = MlxHostfile(group, name, {"a", "b"});
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_NE(std::string(text.status().message()).find("ring"), std::string::npos)
        << "those that there are: " << text.status();
  }
}

}  // namespace
}  // namespace macrame::transport
