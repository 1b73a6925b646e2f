#include "runtime/model_files/model_folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "proto/model_fingerprint.h"
#include "proto/reasons.h"
#include "tests/unit/runtime/model_files/model_writer.h"

namespace macrame::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::vector<std::string> Names(ModelFolders& folders) {
  std::vector<std::string> names;
  for (const v1::LocalModel& model : folders.Scan()) names.push_back(model.name());
  return names;
}

void Add(const std::string& folder) { WriteModel(folder, SmallConfig(), SmallTensors()); }

std::string CodeOf(const absl::StatusOr<ResolvedModel>& model) {
  return ReasonOf(model.status()).code();
}

TEST(ModelFolders, UnderstandsThreeLayouts) {
  const std::string root = MakeFolder("models");
  Add(root + "/plain-4bit");
  Add(root + "/mlx-community/Other-8bit");
  Add(root + "/models--Qwen--Qwen3-0.6B/snapshots/abc123");
  Add(root + "/.hidden/secret");
  ModelFolders folders({root});
  EXPECT_THAT(Names(folders),
              ElementsAre("Qwen/Qwen3-0.6B", "mlx-community/Other-8bit", "plain-4bit"));
  EXPECT_GT(folders.Scan()[0].size_bytes(), 100'000u);
  ModelFolders single({root + "/plain-4bit"});
  EXPECT_THAT(Names(single), ElementsAre("plain-4bit")) << "a folder may be a model itself";
  ModelFolders none({"/nonexistent"});
  EXPECT_TRUE(none.Scan().empty());
}

TEST(ModelFolders, AModelThatIsNotThereIsToldWithTheFoldersThatWereSearched) {
  const std::string own = MakeFolder("models"), hub = MakeFolder("hub");
  Add(own + "/knot-5m");
  ModelFolders folders({own, hub});
  const auto absent = folders.Resolve("zebra");
  EXPECT_EQ(CodeOf(absent), "MODEL_NOT_FOUND");
  EXPECT_THAT(ReasonOf(absent.status()).message(), HasSubstr("it looks in " + own + ", " + hub));
  EXPECT_THAT(ReasonOf(folders.Resolve("knot-5n").status()).message(),
              HasSubstr("did you mean knot-5m? It looks in " + own));
}

TEST(ModelFolders, LooksChangedWhenAModelComesOrGoes) {
  const std::string root = MakeFolder("models");
  Add(root + "/a");
  ModelFolders folders({root});
  EXPECT_THAT(Names(folders), ElementsAre("a"));
  EXPECT_FALSE(folders.LooksChanged());
  Add(root + "/b");
  EXPECT_TRUE(folders.LooksChanged());
  EXPECT_THAT(Names(folders), ElementsAre("a", "b"));
  EXPECT_EQ(folders.Models().size(), 2u);
  EXPECT_FALSE(folders.LooksChanged());
  fs::remove(root + "/b/tokenizer.json");
  EXPECT_TRUE(folders.LooksChanged()) << "in a model's own folder";
  fs::remove_all(root);
  EXPECT_TRUE(folders.LooksChanged());
}

// Folders that take as long as one may, one after the other: who asks by name waits for one scan.
TEST(ModelFolders, OneScanTakesNoLongerThanItsLimitAndTheNextGoesOn) {
  const std::string root = MakeFolder("models");
  for (const char* name : {"a", "b", "c", "d"}) Add(root + "/" + name);
  MonotonicTime now(std::chrono::seconds(100));
  int described = 0;
  ModelFolders folders(
      {root},
      [&](const std::string& folder, const SecondEngine& second) {
        ++described;
        now += kScanLimit * 2 / 3;
        return DescribeHere(folder, second);
      },
      [&] { return now; });
  EXPECT_THAT(Names(folders), ElementsAre("a", "b"));
  ASSERT_EQ(folders.Broken().size(), 2u);
  EXPECT_EQ(folders.Broken()[0].code(), "NOT_READY");
  EXPECT_THAT(folders.Broken()[0].message(), HasSubstr("/c was not looked at yet"));
  EXPECT_THAT(Names(folders), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(described, 4) << "what was described is not described again";
  EXPECT_TRUE(folders.Broken().empty());
}

TEST(ModelFolders, TheHubsMainRevisionIsTaken) {
  const std::string root = MakeFolder("models");
  const std::string hub = root + "/models--Qwen--Qwen3-0.6B";
  Add(hub + "/snapshots/aaa");
  Add(hub + "/snapshots/bbb");
  fs::last_write_time(hub + "/snapshots/aaa",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  const auto taken = [&] { return ModelFolders({root}).Scan().at(0).path(); };
  EXPECT_EQ(taken(), hub + "/snapshots/bbb") << "the newest, when nothing says which";
  fs::create_directory(hub + "/refs");
  std::ofstream(hub + "/refs/main") << "aaa\n";
  EXPECT_EQ(taken(), hub + "/snapshots/aaa");
  std::ofstream(hub + "/refs/main") << "gone";
  EXPECT_EQ(taken(), hub + "/snapshots/bbb");
  Add(root + "/elsewhere");
  std::ofstream(hub + "/refs/main") << "../../elsewhere";
  EXPECT_EQ(taken(), hub + "/snapshots/bbb") << "a revision is no path";
}

TEST(ModelFolders, BoundsAndCirclesEndTheSearch) {
  const std::string root = MakeFolder("models");
  Add(root + "/a/b/c/d");
  Add(root + "/1/2/3/4/5");
  fs::create_directory_symlink(root, root + "/loop");
  ModelFolders folders({root});
  EXPECT_THAT(Names(folders), ElementsAre("c/d"));
}

TEST(ModelFolders, EarlierFoldersWinAndBrokenModelsAreListed) {
  const std::string first = MakeFolder("first");
  const std::string second = MakeFolder("second");
  Add(first + "/m");
  Add(second + "/m");
  Add(second + "/broken");
  WriteFile(second + "/broken/config.json", "{");
  ModelFolders folders({first, second});
  const auto models = folders.Scan();
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].path(), first + "/m");
  ASSERT_EQ(folders.Broken().size(), 1u);
  EXPECT_EQ(folders.Broken()[0].code(), "MODEL_CONFIG_INVALID");
  EXPECT_EQ(CodeOf(folders.Resolve("broken")), "MODEL_CONFIG_INVALID");
}

TEST(ModelFolders, ChangesAreSeen) {
  const std::string root = MakeFolder("models");
  Add(root + "/m");
  ModelFolders folders({root});
  const std::string before = folders.Scan()[0].fingerprint();
  EXPECT_EQ(folders.Scan()[0].fingerprint(), before);
  nlohmann::json config = SmallConfig();
  config["rope_theta"] = 5e5;
  WriteConfig(root + "/m", config);
  EXPECT_NE(folders.Scan()[0].fingerprint(), before);
  fs::remove_all(root + "/m");
  EXPECT_TRUE(folders.Scan().empty());
}

TEST(ModelFolders, ResolvesNames) {
  const std::string root = MakeFolder("models");
  Add(root + "/mlx-community/Mistral-7B-Instruct-v0.3-4bit");
  Add(root + "/mlx-community/Kimi-K2-Instruct-4bit");
  Add(root + "/knot-5m-4bit");
  Add(root + "/knot-9m-4bit");
  ModelFolders folders({root});
  const auto name_of = [&](const std::string& wanted) {
    const auto resolved = folders.Resolve(wanted);
    return resolved.ok() ? resolved->model.name() : ReasonOf(resolved.status()).code();
  };
  EXPECT_EQ(name_of("knot-5m-4bit"), "knot-5m-4bit");
  EXPECT_TRUE(folders.Resolve("knot-5m-4bit")->note.empty());
  EXPECT_EQ(folders.Resolve("knot-5m-4bit")->description.name(), "knot-5m-4bit");
  EXPECT_EQ(name_of("KNOT-5M-4BIT"), "knot-5m-4bit");
  EXPECT_EQ(name_of("knot-5m"), "knot-5m-4bit");
  EXPECT_EQ(name_of("mistral-7b-instruct-v0.3-4bit"),
            "mlx-community/Mistral-7B-Instruct-v0.3-4bit");
  EXPECT_EQ(name_of("mistral-7b-instruct"), "mlx-community/Mistral-7B-Instruct-v0.3-4bit");
  EXPECT_EQ(name_of("kimmi-k2-1t-moe"), "mlx-community/Kimi-K2-Instruct-4bit");
  EXPECT_THAT(folders.Resolve("kimmi-k2-1t-moe")->note,
              HasSubstr("resolved to mlx-community/Kimi-K2-Instruct-4bit"));
  EXPECT_EQ(name_of("knot"), "MODEL_AMBIGUOUS");
  EXPECT_THAT(std::string(folders.Resolve("knot").status().message()),
              HasSubstr("knot-5m-4bit, knot-9m-4bit"));
  EXPECT_EQ(name_of("4bit"), "MODEL_AMBIGUOUS");
}

TEST(ModelFolders, WhatIsNotThereSaysWhatIsNear) {
  const std::string root = MakeFolder("models");
  Add(root + "/knot-5m-4bit");
  ModelFolders folders({root});
  const auto typo = folders.Resolve("kont-5m-4bit");
  EXPECT_EQ(CodeOf(typo), "MODEL_NOT_FOUND");
  EXPECT_THAT(std::string(typo.status().message()), HasSubstr("did you mean knot-5m-4bit?"));
  for (const auto& [name, id] : std::map<std::string, std::string>{
           {"mistral-7b-instruct", "mlx-community/Mistral-7B-Instruct-v0.3-4bit"},
           {"deepseek-v3.1-8bit", "mlx-community/DeepSeek-V3.1-8bit"},
           {"kimmi-k2-1t-moe", "mlx-community/Kimi-K2-Instruct-4bit"},
           {"qwen-480b-coder", "mlx-community/Qwen3-Coder-480B-A35B-Instruct-4bit"}}) {
    const auto absent = folders.Resolve(name);
    EXPECT_EQ(CodeOf(absent), "MODEL_NOT_FOUND");
    EXPECT_THAT(std::string(absent.status().message()), HasSubstr("resolved to " + id));
  }
}

TEST(ModelFolders, NamesAreNeverPaths) {
  const std::string root = MakeFolder("models");
  Add(root + "/inside/m");
  Add(root + "/outside");
  ModelFolders folders({root + "/inside"});
  for (const char* name :
       {"inside/../../outside", "m/../../outside", "x/..", "", "%2e%2e/outside"}) {
    EXPECT_EQ(CodeOf(folders.Resolve(name)), "MODEL_NOT_FOUND") << name;
  }
}

TEST(ModelFolders, PathsAreTakenAsTheyAre) {
  const std::string root = MakeFolder("models");
  Add(root + "/org/m");
  ModelFolders folders({root});
  EXPECT_EQ(folders.Resolve(root + "/org/../org/m")->model.name(), "org/m") << "its known name";
  ModelFolders none({});
  const auto resolved = none.Resolve(root + "/org/m/");
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->model.name(), "m");
  EXPECT_EQ(resolved->model.path(), fs::canonical(root + "/org/m").string());
  EXPECT_EQ(CodeOf(none.Resolve("/nonexistent/m")), "MODEL_NOT_FOUND");
  EXPECT_EQ(CodeOf(none.Resolve(root)), "MODEL_CONFIG_INVALID");
}

TEST(ModelFolders, FindsTheSameModelByItsFingerprint) {
  const std::string root = MakeFolder("models");
  Add(root + "/m");
  ModelFolders folders({root});
  const std::string fingerprint = folders.Scan()[0].fingerprint();
  EXPECT_TRUE(folders.Find("m", fingerprint).ok());
  EXPECT_TRUE(folders.Find("called-otherwise", fingerprint).ok());
  const auto other = folders.Find("m", "0123");
  EXPECT_EQ(CodeOf(other), "MODEL_NOT_ON_NODE");
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("other files"));
  EXPECT_THAT(std::string(folders.Find("x", "0123").status().message()), HasSubstr("has no model"));
}

// A copy with a corrected template is not the other folder's model, whatever its weights are.
TEST(ModelFolders, ACopyWithAnotherTemplateIsAnotherModel) {
  const std::string root = MakeFolder("models");
  Add(root + "/a");
  Add(root + "/b");
  WriteFile(root + "/b/chat_template.jinja", "fixed");
  ModelFolders folders({root});
  const auto models = folders.Scan();
  ASSERT_EQ(models.size(), 2u);
  EXPECT_TRUE(DifferInTextAlone(models[0].fingerprint(), models[1].fingerprint()));
  EXPECT_EQ(folders.Find("x", models[1].fingerprint())->model.path(), root + "/b");
  EXPECT_EQ(folders.Find("b", WeightsPartOf(models[0].fingerprint()))->model.path(), root + "/b")
      << "as orders of older versions name it";
  // A template that changes is seen, though no JSON file has.
  WriteFile(root + "/b/chat_template.jinja", "fixed again");
  EXPECT_NE(folders.Scan()[1].fingerprint(), models[1].fingerprint());
}

TEST(ModelFolders, WeightsThatAreNotLoadedAreNotCounted) {
  const std::string root = MakeFolder("models");
  Add(root + "/m");
  ModelFolders folders({root});
  const uint64_t before = folders.Scan()[0].size_bytes();
  WriteFile(root + "/m/consolidated.safetensors", std::string(5000, 'x'));
  WriteFile(root + "/m/pytorch_model.bin", std::string(7000, 'x'));
  EXPECT_EQ(folders.Scan()[0].size_bytes(), before);
}

}  // namespace
}  // namespace macrame::runtime
