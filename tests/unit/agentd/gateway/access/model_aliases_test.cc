#include "agentd/gateway/access/model_aliases.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

// What a cluster serves, and the aliases that its profiles give.
class Cluster : public InferenceBackend {
 public:
  std::shared_ptr<GenerateCall> StartGenerate(v1::GenerateRequest, ChunkCallback,
                                              DoneCallback) override {
    return nullptr;
  }
  std::vector<ServedModel> ListModels() override { return {{"qwen", 1, 4096}, {"tiny", 2, 512}}; }
  std::map<std::string, std::string> Aliases() override { return aliases; }
  std::map<std::string, std::string> aliases{};
};

class ModelAliasesTest : public ::testing::Test {
 protected:
  Cluster models_;
};

std::vector<std::string> Names(const std::vector<ServedModel>& models) {
  std::vector<std::string> names;
  for (const ServedModel& model : models) names.push_back(model.id);
  return names;
}

TEST_F(ModelAliasesTest, AnExactNameComesBeforeTheLongestBeginning) {
  const ModelAliases aliases(
      {"claude-*=qwen", "claude-haiku-*=tiny", "claude-opus=tiny", "*=qwen", "gpt-4o=tiny"});
  EXPECT_EQ(aliases.Resolve("claude-sonnet-4", models_), "qwen");
  EXPECT_EQ(aliases.Resolve("claude-haiku-4", models_), "tiny");
  EXPECT_EQ(aliases.Resolve("claude-opus", models_), "tiny");
  EXPECT_EQ(aliases.Resolve("gpt-4o", models_), "tiny");
  EXPECT_EQ(aliases.Resolve("anything", models_), "qwen");
}

TEST_F(ModelAliasesTest, LatestBehindANameIsLeftOut) {
  EXPECT_EQ(ModelAliases().Resolve("tiny:latest", models_), "tiny");
  EXPECT_EQ(ModelAliases({"gpt-4o=tiny"}).Resolve("gpt-4o:latest", models_), "tiny");
  EXPECT_EQ(ModelAliases({"a:latest=tiny"}).Resolve("a:latest", models_), "tiny");
}

TEST_F(ModelAliasesTest, AModelKeepsItsOwnName) {
  const ModelAliases aliases({"*=qwen", "tiny=qwen"});
  EXPECT_EQ(aliases.Resolve("tiny", models_), "tiny");
  EXPECT_EQ(aliases.Resolve("tiny#2", models_), "tiny#2") << "one of its replicas";
}

TEST_F(ModelAliasesTest, WithoutAFittingOneTheNameStays) {
  EXPECT_EQ(ModelAliases().Resolve("gpt-4o", models_), "gpt-4o");
  EXPECT_EQ(ModelAliases({"=qwen", "a=", "b"}).Resolve("a", models_), "a");
}

TEST_F(ModelAliasesTest, ListsShowThoseOfModelsThatAreThere) {
  const ModelAliases aliases({"gpt-4o=tiny", "claude-*=qwen", "o3=gone", "qwen=tiny"});
  const std::vector<ServedModel> listed = aliases.WithAliases(models_);
  EXPECT_EQ(Names(listed), (std::vector<std::string>{"qwen", "tiny", "gpt-4o"}));
  EXPECT_EQ(listed.back().context_length, 512u);
}

TEST_F(ModelAliasesTest, ThoseOfTheClusterComeBehindThisGateways) {
  models_.aliases = {{"gpt-4o", "qwen"}, {"sonnet", "unloaded"}, {"o4", "qwen"}, {"tiny", "qwen"}};
  const ModelAliases aliases({"gpt-4o=tiny", "o*=tiny"});
  EXPECT_EQ(aliases.Resolve("gpt-4o", models_), "tiny") << "this gateway's";
  EXPECT_EQ(aliases.Resolve("o4", models_), "qwen") << "an exact one before a beginning";
  EXPECT_EQ(aliases.Resolve("o5", models_), "tiny");
  EXPECT_EQ(aliases.Resolve("tiny", models_), "tiny") << "its own name";
  EXPECT_EQ(aliases.Resolve("sonnet", models_), "unloaded") << "requests may load it";
  EXPECT_EQ(Names(aliases.WithAliases(models_)),
            (std::vector<std::string>{"qwen", "tiny", "gpt-4o", "o4"}));
}

}  // namespace
}  // namespace macrame::agentd
