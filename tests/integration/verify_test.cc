// `clusterctl model verify` among real agents: each has a copy of the bundled model of its own, and
// some copies are damaged.

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/integration/cluster_test_base.h"

namespace macrame::tests {
namespace {

namespace fs = std::filesystem;

constexpr char kModel[] = "knot-5m-4bit";
constexpr char kWeights[] = "model.safetensors";

class VerifyTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (!fs::exists(MACRAME_BIN "/rankd") || !fs::exists(Bundled())) {
      GTEST_SKIP() << "rankd or the bundled model is not there";
    }
    for (const char* name : {"ada", "bess", "cleo"}) {
      const fs::path copy = Copy(name);
      fs::create_directories(copy.parent_path());
      fs::copy(Bundled(), copy, fs::copy_options::recursive);
      AddAgent(name, "", {"model_folders: [" + copy.parent_path().string() + "]"});
    }
  }
  static std::string Bundled() { return std::string(MACRAME_SOURCE "/deploy/models/") + kModel; }
  fs::path Copy(const std::string& name) const {
    return fs::path(folder_) / ("models-" + name) / kModel;
  }
  void StartAll() {
    for (const auto& agent : agents_) agent->Start();
    WaitFor("three agents", Running(), 30, [](const v1::ClusterStatus& status) {
      return AliveCount(status) == 3 && HasCoordinator(status);
    });
  }

  v1::ModelVerification Verify(const std::string& name) {
    v1::VerifyModelRequest request;
    request.set_name_or_path(name);
    std::vector<v1::ModelVerification> told;
    const absl::Status ended =
        Stream(*agents_[0], agentd::kVerifyModel, request, std::chrono::seconds(60), &told);
    EXPECT_TRUE(ended.ok()) << ended;
    EXPECT_FALSE(told.empty());
    if (told.empty()) return {};
    EXPECT_TRUE(told.back().finished());
    return told.back();
  }
  const v1::NodeModelFiles& Of(const v1::ModelVerification& all, size_t agent) {
    const std::string id = NodeIdOf(*agents_[agent]);
    const auto found = std::find_if(all.nodes().begin(), all.nodes().end(),
                                    [&](const auto& node) { return node.node_id() == id; });
    EXPECT_NE(found, all.nodes().end());
    return found == all.nodes().end() ? v1::NodeModelFiles::default_instance() : *found;
  }
  static v1::ModelFileState StateOf(const v1::NodeModelFiles& node, const std::string& name) {
    for (const v1::ModelFile& file : node.files()) {
      if (file.name() == name) return file.state();
    }
    return v1::MODEL_FILE_STATE_UNSPECIFIED;
  }
};

TEST_F(VerifyTest, SoundCopiesAreAlikeAndDamagedOnesAreToldApart) {
  StartAll();
  const v1::ModelVerification sound = Verify(kModel);
  EXPECT_TRUE(sound.passed()) << sound.ShortDebugString();
  for (size_t agent = 0; agent < 3; ++agent) {
    EXPECT_EQ(StateOf(Of(sound, agent), kWeights), v1::MODEL_FILE_STATE_ALIKE);
    EXPECT_EQ(StateOf(Of(sound, agent), "tokenizer.json"), v1::MODEL_FILE_STATE_ALIKE);
  }
  // One bit in the midst of the weights, which no header and no fingerprint shows.
  std::fstream weights(Copy("bess") / kWeights, std::ios::in | std::ios::out | std::ios::binary);
  weights.seekg(1'700'001);
  const char one = static_cast<char>(weights.get() ^ 4);
  weights.seekp(1'700'001);
  weights.put(one);
  weights.close();
  fs::resize_file(Copy("cleo") / kWeights, 3'000'000);
  fs::remove(Copy("cleo") / "generation_config.json");
  const v1::ModelVerification damaged = Verify(kModel);
  EXPECT_FALSE(damaged.passed());
  EXPECT_EQ(StateOf(Of(damaged, 1), kWeights), v1::MODEL_FILE_STATE_DIFFERS)
      << "one against one: nothing says which is right";
  EXPECT_EQ(StateOf(Of(damaged, 2), kWeights), v1::MODEL_FILE_STATE_TRUNCATED);
  EXPECT_EQ(StateOf(Of(damaged, 2), "generation_config.json"), v1::MODEL_FILE_STATE_MISSING);
  EXPECT_EQ(Of(damaged, 2).broken().code(), "MODEL_FILE_BROKEN") << "and it can't be loaded";
  EXPECT_EQ(StateOf(Of(damaged, 0), "tokenizer.json"), v1::MODEL_FILE_STATE_ALIKE);
}

TEST_F(VerifyTest, WhatTheDownloadNotedSaysWhoIsRight) {
  const fs::path notes = Copy("ada") / ".cache" / "huggingface" / "download";
  fs::create_directories(notes);
  const std::string command =
      "sha256sum " + (Copy("ada") / kWeights).string() + " | cut -c1-64 > " + folder_ + "/sum";
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::string sum;
  std::ifstream(folder_ + "/sum") >> sum;
  std::ofstream(notes / (std::string(kWeights) + ".metadata")) << "revision\n" << sum << "\n0.0\n";
  std::ofstream(Copy("bess") / kWeights, std::ios::app) << "x";
  fs::remove_all(Copy("cleo"));
  StartAll();
  const v1::ModelVerification all = Verify(kModel);
  EXPECT_FALSE(all.passed());
  EXPECT_EQ(StateOf(Of(all, 0), kWeights), v1::MODEL_FILE_STATE_AS_DOWNLOADED);
  EXPECT_EQ(StateOf(Of(all, 1), kWeights), v1::MODEL_FILE_STATE_ALTERED);
  EXPECT_EQ(Of(all, 2).failure().code(), "MODEL_NOT_FOUND");

  const std::string run = MACRAME_BIN "/clusterctl --socket " + agents_[0]->socket_path() +
                          " model verify " + kModel + " -o json > " + folder_ + "/out";
  const int status = std::system(run.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  const auto told = nlohmann::json::parse(std::ifstream(folder_ + "/out"));
  EXPECT_EQ(told["kind"], "ModelVerification");
  EXPECT_EQ(told["passed"], false);
  const std::string none = MACRAME_BIN "/clusterctl --socket " + agents_[0]->socket_path() +
                           " model verify no-such-model 2> /dev/null";
  const int not_found = std::system(none.c_str());
  EXPECT_EQ(WEXITSTATUS(not_found), 4);
}

}  // namespace
}  // namespace macrame::tests
