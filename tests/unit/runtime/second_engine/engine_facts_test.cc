#include "runtime/second_engine/engine_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "tests/unit/discovery/mutation.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::runtime {
namespace {

using testing::ElementsAre;

SecondEngine Found() {
  SecondEngine second;
  second.why_not.clear();
  MlxLm mlx_lm{"/opt/\"py\"/bin/python3", "0.32.2", "metal", {}};
  mlx_lm.architectures["gemma9"].set_tensor(true);
  mlx_lm.architectures["olmo"].set_pipeline(true);
  mlx_lm.architectures["olmo"].set_uneven_tensor(true);
  mlx_lm.architectures["phi"].set_tensor_in_pipeline(true);
  mlx_lm.architectures["plain"];
  second.mlx_lm = mlx_lm;
  return second;
}

TEST(EngineFacts, AreOneLineThatIsReadBack) {
  const std::string text = SecondEngineText(Found());
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto read = ParseSecondEngine(text);
  ASSERT_TRUE(read.has_value() && read->mlx_lm.has_value());
  EXPECT_EQ(read->mlx_lm->python, "/opt/\"py\"/bin/python3");
  EXPECT_EQ(read->mlx_lm->version, "0.32.2");
  EXPECT_EQ(read->mlx_lm->device, "metal");
  ASSERT_EQ(read->mlx_lm->architectures.size(), 4u);
  const SecondEngine found = Found();
  for (const auto& [name, splits] : found.mlx_lm->architectures) {
    EXPECT_EQ(read->mlx_lm->architectures.at(name).SerializeAsString(), splits.SerializeAsString())
        << name;
  }
  SecondEngine none;
  none.why_not = "no python3 has mlx_lm";
  const auto missing = ParseSecondEngine(SecondEngineText(none));
  ASSERT_TRUE(missing.has_value());
  EXPECT_FALSE(missing->mlx_lm.has_value());
  EXPECT_EQ(missing->why_not, "no python3 has mlx_lm");
}

TEST(EngineFacts, BytesThatAreNoTextSpoilNothing) {
  SecondEngine second = Found();
  second.mlx_lm->python = "/home/j\xfcrgen/python3";
  const auto read = ParseSecondEngine(SecondEngineText(second));
  ASSERT_TRUE(read.has_value());
  EXPECT_THAT(read->mlx_lm->python, testing::StartsWith("/home/j"));
}

TEST(EngineFacts, AnythingElseIsNone) {
  for (const char* text :
       {"", "null", "[]", "7", "{}", "{\"why_not\":7}", "{\"why_not\":\"\",\"python\":\"/p\"}",
        R"({"why_not":"","python":"/p","version":"1","device":"cpu","architectures":[]})",
        R"({"why_not":"","python":"/p","version":1,"device":"cpu","architectures":{}})",
        R"({"why_not":"","python":"/p","version":"1","device":"cpu","architectures":{"a":"1"}})",
        R"({"why_not":"","python":"/p","version":"1","device":"cpu","architectures":{"a":1.5}})"}) {
    EXPECT_FALSE(ParseSecondEngine(text).has_value()) << text;
  }
  const std::string good = SecondEngineText(Found());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(ParseSecondEngine(good.substr(0, size)).has_value()) << size;
  }
  std::mt19937_64 random(5);
  for (int i = 0; i < 5000; ++i) ParseSecondEngine(tests::Mutate(good, random));
}

// ---- which interpreters are asked

TEST(PythonCandidates, TheConfiguredOneAlone) {
  EXPECT_THAT(PythonCandidates("/opt/p/bin/python3", "/usr/bin", "/home/a"),
              ElementsAre("/opt/p/bin/python3"));
}

TEST(PythonCandidates, TheUsersOwnFirstAndNoFolderTwice) {
  const std::string folder = FreshFolder();
  std::filesystem::create_directories(folder + "/real");
  std::filesystem::create_directory_symlink(folder + "/real", folder + "/other");
  const auto candidates = PythonCandidates(
      "", folder + "/real::relative:" + folder + "/other:" + folder + "/real/", "/home/a");
  ASSERT_GE(candidates.size(), 2u);
  EXPECT_EQ(candidates[0], "/home/a/.macrame/mlx-lm/bin/python3");
  EXPECT_EQ(candidates[1], folder + "/real/python3");
  for (size_t i = 2; i < candidates.size(); ++i) {
    EXPECT_THAT(candidates[i], testing::Not(testing::HasSubstr(folder))) << "the same folder";
    EXPECT_EQ(candidates[i].front(), '/') << "nothing relative is run";
  }
}

TEST(PythonCandidates, AreFew) {
  std::string path;
  for (int i = 0; i < 500; ++i) path += "/nowhere/" + std::to_string(i) + ":";
  EXPECT_LE(PythonCandidates("", path, "").size(), 16u);
}

}  // namespace
}  // namespace macrame::runtime
