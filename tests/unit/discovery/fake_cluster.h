#pragma once

// Whole clusters of simulated Macs, written by tests/macos/fake/make_cluster from its descriptions
// and read as the agents there would; and folders of further captures. Tests run in the
// repository's root.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "discovery/probe/link_facts.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::tests {

inline std::vector<std::string> ClusterNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("tests/macos/fake/clusters")) {
    names.push_back(entry.path().stem().string());
  }
  return names;
}

// The folder with a sub-folder for each machine.
inline std::string MakeCluster(const std::string& name) {
  const std::string out = FreshFolder() + "/" + name;
  const std::string line =
      "python3 tests/macos/fake/make_cluster tests/macos/fake/clusters/" + name + ".json " + out;
  EXPECT_EQ(std::system(line.c_str()), 0) << line;
  return out;
}

inline v1::LinkFacts FactsOf(const std::string& folder, const std::string& machine) {
  auto runner = discovery::ReplayCommandRunner::Open(folder + "/" + machine);
  EXPECT_TRUE(runner.ok()) << runner.status().message();
  if (!runner.ok()) return {};
  discovery::LinkInputs inputs;
  inputs.node_id = NodeId("000000000000000000000000000000aa");
  inputs.hostname = machine;
  inputs.mlx_version = "0.32.4";
  return discovery::CollectMacLinks(*runner, inputs);
}

inline std::map<std::string, v1::LinkFacts> ClusterFacts(const std::string& name) {
  const std::string folder = MakeCluster(name);
  std::map<std::string, v1::LinkFacts> facts;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_directory()) continue;
    const std::string machine = entry.path().filename().string();
    facts[machine] = FactsOf(folder, machine);
  }
  return facts;
}

inline std::string ReadWholeFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Further captures, laid out in sub-folders by what printed them; empty when none are given.
inline std::string ExtraCaptures() {
  const char* folder = std::getenv("MACRAME_EXTRA_CAPTURES");
  return folder == nullptr ? "" : folder;
}

}  // namespace macrame::tests
