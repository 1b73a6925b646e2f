#include "agentd/gateway/model_aliases.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

const std::vector<ServedModel> kModels = {{"qwen", 1, 4096}, {"tiny", 2, 512}};

std::vector<std::string> Names(const std::vector<ServedModel>& models) {
  std::vector<std::string> names;
  for (const ServedModel& model : models) names.push_back(model.id);
  return names;
}

TEST(ModelAliases, AnExactNameComesBeforeTheLongestBeginning) {
  const ModelAliases aliases(
      {"claude-*=qwen", "claude-haiku-*=tiny", "claude-opus=tiny", "*=qwen", "gpt-4o=tiny"});
  EXPECT_EQ(aliases.Resolve("claude-sonnet-4", kModels), "qwen");
  EXPECT_EQ(aliases.Resolve("claude-haiku-4", kModels), "tiny");
  EXPECT_EQ(aliases.Resolve("claude-opus", kModels), "tiny");
  EXPECT_EQ(aliases.Resolve("gpt-4o", kModels), "tiny");
  EXPECT_EQ(aliases.Resolve("anything", kModels), "qwen");
}

TEST(ModelAliases, AModelKeepsItsOwnName) {
  const ModelAliases aliases({"*=qwen", "tiny=qwen"});
  EXPECT_EQ(aliases.Resolve("tiny", kModels), "tiny");
  EXPECT_EQ(aliases.Resolve("tiny#2", kModels), "tiny#2") << "one of its replicas";
}

TEST(ModelAliases, WithoutAFittingOneTheNameStays) {
  EXPECT_EQ(ModelAliases().Resolve("gpt-4o", kModels), "gpt-4o");
  EXPECT_EQ(ModelAliases({"=qwen", "a=", "b"}).Resolve("a", kModels), "a");
}

TEST(ModelAliases, ListsShowThoseOfModelsThatAreThere) {
  const ModelAliases aliases({"gpt-4o=tiny", "claude-*=qwen", "o3=gone", "qwen=tiny"});
  const std::vector<ServedModel> listed = aliases.WithAliases(kModels);
  EXPECT_EQ(Names(listed), (std::vector<std::string>{"qwen", "tiny", "gpt-4o"}));
  EXPECT_EQ(listed.back().context_length, 512u);
}

}  // namespace
}  // namespace macrame::agentd
