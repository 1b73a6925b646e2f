// plan --cluster, capacity, topology: the real planner program behind the real command line,
// without any agent.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/exit_codes.h"
#include "planner/offline/catalogue_entry.h"
#include "tests/unit/cli/cli_run.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::cli {
namespace {

using nlohmann::json;

class PlannerCommandsTest : public ::testing::Test {
 protected:
  PlannerCommandsTest() : folder_(FreshFolder()) {}

  CliRun Run(std::vector<std::string> arguments, const std::string& planner = MACRAME_PLANNER) {
    CliWorld world;
    world.variables["MACRAME_SOCKET"] = folder_ + "/nobody";
    world.variables["MACRAME_PLANNER"] = planner;
    world.variables["MACRAME_RANKD"] = MACRAME_RANKD;
    return Clusterctl(arguments, world);
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  std::string Studios() {
    return Write("studios.yaml",
                 "nodes:\n- {name: one, machine: mac-studio-m3-ultra-256gb}\n"
                 "- {name: two, machine: mac-studio-m3-ultra-256gb}\nlinks: mesh\n");
  }

  const std::string folder_;
};

TEST_F(PlannerCommandsTest, PlansOnADescribedClusterWithoutAnAgent) {
  const CliRun run = Run({"plan", "Qwen3-235B-A22B-8bit", "--cluster", Studios(), "-o", "json"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  const json plan = json::parse(run.out)["plan"];
  EXPECT_EQ(plan["tp"], 2);
  EXPECT_EQ(plan["backend"], "jaccl");
  EXPECT_GT(plan["prediction"]["tokens_per_second"].get<double>(), 20);
  const CliRun none = Run({"plan", "Kimi-K2-Thinking-4bit", "--cluster", Studios()});
  EXPECT_EQ(none.exit_code, kExitFailure);
  EXPECT_NE(none.out.find("Does not fit"), std::string::npos) << none.out;
}

TEST_F(PlannerCommandsTest, AnEntryOfOnesOwnWinsOverTheCatalogue) {
  const std::string entry =
      Write("entry.yaml",
            "models:\n- {name: Ours, layers: 40, hidden: 4096, heads: 32, kv_heads: 8, "
            "head_dim: 128, intermediate: 14336, vocab: 32000, context: 8192}\n");
  const CliRun run = Run({"plan", "ours", "--bits", "4", "--cluster", Studios(), "--catalogue",
                          entry, "--nodes", "two"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_NE(run.out.find("Ours-4bit: one node"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("two"), std::string::npos);
}

TEST_F(PlannerCommandsTest, BadInputIsUsageWithTheReason) {
  const std::map<std::vector<std::string>, std::string> cases = {
      {{"plan", "x", "--cluster", folder_ + "/none.yaml"}, "can't be read"},
      {{"plan", "x", "--cluster", Write("bad.yaml", "nodes: [{name: a}]")}, "node 1"},
      {{"plan", "no-such-model", "--cluster", Studios()}, "no-such-model"},
      {{"capacity"}, "name machines to buy"},
      {{"capacity", "--buy", "4x mac-studio-m3-ultra-192gb"}, "not sold"},
      {{"topology", "advise", "--buy", "abacus"}, "abacus"},
  };
  for (const auto& [arguments, expected] : cases) {
    const CliRun run = Run(arguments);
    EXPECT_NE(run.exit_code, kExitOk) << expected;
    EXPECT_NE(run.err.find(expected), std::string::npos) << run.err;
  }
}

TEST_F(PlannerCommandsTest, AModelsOwnFilesArePlannedWith) {
  const CliRun run =
      Run({"plan", MACRAME_BUNDLED_MODEL, "--cluster", Studios(), "-o", "json", "--users", "4"});
  ASSERT_EQ(run.exit_code, kExitOk) << run.err;
  const json plan = json::parse(run.out)["plan"];
  EXPECT_EQ(plan["model_name"], "knot-5m-4bit");
  // The file's own size, which no entry knows.
  const auto weights = std::filesystem::file_size(MACRAME_BUNDLED_MODEL "/model.safetensors");
  uint64_t planned = 0;
  for (const json& rank : plan["assignments"]) {
    for (const char* item : {"weights_bytes", "embedding_bytes", "head_bytes"}) {
      planned += rank["need"][item].get<uint64_t>();
    }
  }
  EXPECT_NEAR(static_cast<double>(planned), static_cast<double>(weights), 0.03 * weights);
  const CliRun capacity =
      Run({"capacity", "--buy", "1x mac-mini-m4-16gb", "--models", MACRAME_BUNDLED_MODEL});
  EXPECT_NE(capacity.out.find("knot-5m-4bit"), std::string::npos) << capacity.err;
  EXPECT_EQ(capacity.out.find("Llama"), std::string::npos) << "only what was asked for";
  const CliRun buy = Run({"capacity", "--for", MACRAME_BUNDLED_MODEL});
  EXPECT_NE(buy.out.find("machines for knot-5m-4bit"), std::string::npos) << buy.err;
  const CliRun cables = Run(
      {"topology", "advise", "--buy", "2x mac-mini-m4-pro-24gb", "--model", MACRAME_BUNDLED_MODEL});
  EXPECT_NE(cables.out.find("knot-5m-4bit with all of them"), std::string::npos) << cables.err;
}

TEST_F(PlannerCommandsTest, AFolderThatIsNoModelSaysWhy) {
  std::filesystem::create_directory(folder_ + "/odd");
  Write("odd/config.json", R"({"model_type": "abacus", "architectures": ["Abacus"]})");
  Write("odd/model.safetensors", "nothing");
  const std::map<std::vector<std::string>, std::string> cases = {
      {{"plan", folder_ + "/absent", "--cluster", Studios()}, "is not a folder"},
      {{"plan", folder_, "--cluster", Studios()}, "config.json"},
      {{"plan", folder_ + "/odd", "--cluster", Studios()}, "a name of the catalogue"},
      {{"plan", MACRAME_BUNDLED_MODEL, "--bits", "8", "--cluster", Studios()}, "leave out --bits"},
      {{"topology", "advise", "--buy", "2x mac-mini-m4-16gb", "--model", folder_ + "/absent"},
       "is not a folder"},
  };
  for (const auto& [arguments, expected] : cases) {
    const CliRun run = Run(arguments);
    EXPECT_NE(run.exit_code, kExitOk) << expected;
    EXPECT_NE(run.err.find(expected), std::string::npos) << run.err;
  }
}

// The planner's list of what is served is the engine's own.
TEST_F(PlannerCommandsTest, WhatCanOnlyBePredictedIsWhatNoEngineKnows) {
  std::filesystem::create_directory(folder_ + "/odd");
  Write("odd/config.json", R"({"model_type": "abacus", "architectures": ["Abacus"]})");
  Write("odd/model.safetensors", "nothing");
  const CliRun engine = Run({"plan", folder_ + "/odd", "--cluster", Studios()});
  const size_t known = engine.err.find("known are ");
  ASSERT_NE(known, std::string::npos) << engine.err;
  const size_t begin = known + std::string("known are ").size();
  std::istringstream list(engine.err.substr(begin, engine.err.find_first_of(";\n", begin) - begin));
  std::set<std::string> engines, planners;
  for (std::string word; std::getline(list >> std::ws, word, ',');) engines.insert(word);
  for (const std::string_view one : planner::kServedArchitectures) planners.emplace(one);
  EXPECT_EQ(engines, planners);
  // Whoever plans for one that no engine knows reads that first.
  const CliRun plan = Run({"plan", "DeepSeek-V4-Flash-4bit", "--cluster", Studios()});
  EXPECT_EQ(plan.out.rfind("Predicted only: this release predicts DeepSeek-V4-Flash-4bit", 0), 0u)
      << plan.out;
}

TEST_F(PlannerCommandsTest, ANarrowerCacheTakesLess) {
  const auto cache = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {
        "plan", "Llama-3.3-70B-Instruct-8bit", "--cluster", Studios(), "--context", "131072", "-o",
        "json"};
    words.insert(words.end(), more.begin(), more.end());
    const CliRun run = Run(words);
    EXPECT_EQ(run.exit_code, kExitOk) << run.err;
    return json::parse(run.out)["plan"]["assignments"][0]["need"]["kv_cache_bytes"].get<double>();
  };
  EXPECT_NEAR(cache({"--kv-bits", "8"}), cache({}) * 8.5 / 16, 1e6) << "with scales and biases";
  EXPECT_NEAR(cache({"--kv-bits", "4"}), cache({}) * 4.5 / 16, 1e6);
  EXPECT_NEAR(cache({"--kv-bits", "2"}), cache({}) / 8, 1e6)
      << "engines that can are described too";
  EXPECT_EQ(cache({"--kv-bits", "16"}), cache({}));
}

TEST_F(PlannerCommandsTest, AnOptionThatMakesNoSenseIsNoMisfit) {
  const CliRun run =
      Run({"plan", "Qwen3-30B-A3B-4bit", "--cluster", Studios(), "--nodes", "three"});
  EXPECT_EQ(run.exit_code, kExitNotFound);
  EXPECT_NE(run.err.find("there is no node 'three'; known are one, two"), std::string::npos)
      << run.err;
  EXPECT_EQ((run.out + run.err).find("fit"), std::string::npos) << run.out << run.err;
  const CliRun lonely = Run({"plan", "Qwen3-30B-A3B-4bit", "--cluster", Studios(), "--ranks", "5"});
  EXPECT_NE((lonely.out + lonely.err).find("o plan"), std::string::npos)
      << lonely.out << lonely.err;
}

TEST_F(PlannerCommandsTest, FilesThatAreNoDescriptionsSayWhatToDo) {
  Write("latin.yaml", "nodes:\n- {name: caf\xe9, memory_gib: 8}\n");
  Write("empty.yaml", "  \n");
  Write("word.yaml", "hello");
  Write("list.yaml", "- 1\n- 2\n");
  Write("five.yaml", "nodes: [5]\n");
  Write("kind.yaml", "nodes: [{name: a, memory_gib: x}]\n");
  Write("large.yaml", "");
  std::filesystem::resize_file(folder_ + "/large.yaml", 100 << 20);
  const std::map<std::string, std::string> faults = {
      {"latin.yaml", "is not text in UTF-8, at byte 19"},
      {"empty.yaml", "is empty"},
      {"large.yaml", "has more than 4 MiB"},
      {"word.yaml", "'nodes:'"},
      {"five.yaml", "line 1, column 9"},
      {"kind.yaml", "line 1, column 31: a value of the wrong kind"},
      {"list.yaml", "'nodes:'"},
      {"", "is a folder"},
      {"none.yaml", "can't be read"}};
  for (const auto& [file, expected] : faults) {
    const CliRun run = Run({"plan", "Qwen3-0.6B", "--cluster", folder_ + "/" + file});
    EXPECT_EQ(run.exit_code, kExitUsage) << file;
    EXPECT_NE(run.err.find(expected), std::string::npos) << run.err;
  }
  const CliRun name = Run({"plan", "caf\xe9", "--cluster", Studios()});
  EXPECT_EQ(name.exit_code, kExitUsage);
  EXPECT_NE(name.err.find("not text in UTF-8"), std::string::npos) << name.err;
  const CliRun entry =
      Run({"capacity", "--tier", "starter", "--catalogue", folder_ + "/word.yaml"});
  EXPECT_EQ(entry.exit_code, kExitUsage);
  EXPECT_NE(entry.err.find("'models:'"), std::string::npos) << entry.err;
}

TEST_F(PlannerCommandsTest, CapacityAndTopologyInEachFormat) {
  const CliRun table = Run({"capacity", "--tier", "enterprise"});
  EXPECT_EQ(table.exit_code, kExitOk) << table.err;
  EXPECT_NE(table.out.find("£28.40"), std::string::npos);
  const CliRun document = Run({"capacity", "--tier", "enterprise", "-o", "json"});
  EXPECT_EQ(json::parse(document.out)["currency"], "£");
  const CliRun cables = Run({"topology", "advise", "--buy", "4x mac-studio-m3-ultra-512gb"});
  EXPECT_EQ(cables.exit_code, kExitOk) << cables.err;
  EXPECT_NE(cables.out.find("6 cables"), std::string::npos);
  const CliRun bits = Run({"topology", "advise", "--buy", "2x mac-mini-m4-16gb", "--bits", "4"});
  EXPECT_EQ(bits.exit_code, kExitUsage) << "of which model?";
  const CliRun lan =
      Run({"topology", "advise", "--buy", "2x mac-mini-m4-16gb", "--model", "Qwen3-0.6B-4bit"});
  EXPECT_NE(lan.out.find("Qwen3-0.6B-4bit over the LAN: "), std::string::npos)
      << lan.out << lan.err;
}

TEST_F(PlannerCommandsTest, FlagsThatWouldBeIgnoredAreRefused) {
  const std::string model = "Qwen3-8B-4bit";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--for", model, "--buy", "1x mac-mini-m4-16gb"},
       "--for seeks machines and --buy names them"},
      {{"--for", model, "--tier", "starter"}, "--tier names them"},
      {{"--for", model, "--cluster", Studios()}, "--cluster names them"},
      {{"--for", model, "--models", "Qwen3-0.6B"}, "--models names others"},
      {{"--for", model, "--price", "100"}, "--price is of certain machines"},
      {{"--tier", "starter", "--speed", "10"}, "it needs --for"},
      {{"--for", ""}, "nothing is named"},
      {{"--tier", "starter", "--models", ","}, "nothing is named"},
  };
  for (const auto& [flags, expected] : cases) {
    std::vector<std::string> words = {"capacity"};
    words.insert(words.end(), flags.begin(), flags.end());
    const CliRun run = Run(words);
    EXPECT_EQ(run.exit_code, kExitUsage) << expected;
    EXPECT_NE(run.err.find(expected), std::string::npos) << run.err;
    EXPECT_EQ(run.out, "");
  }
}

TEST_F(PlannerCommandsTest, NothingToBuyIsAFailureThatSaysWhatIsMissing) {
  const CliRun run = Run({"capacity", "--for", "DeepSeek-V3.1-4bit", "--speed", "500"});
  EXPECT_EQ(run.exit_code, kExitFailure);
  EXPECT_NE(run.err.find("the fastest, 4x"), std::string::npos) << run.err;
  const CliRun small = Run({"capacity", "--for", "Qwen3-0.6B-4bit"});
  EXPECT_EQ(small.exit_code, kExitOk) << small.err;
  EXPECT_NE(small.out.find("1x mac-mini-m4-16gb"), std::string::npos) << small.out;
}

TEST_F(PlannerCommandsTest, UsersArePredictedAsMemoryIsPlannedForThem) {
  const auto plan = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"plan", "Llama-3.3-70B-Instruct-8bit", "--cluster",
                                      Studios()};
    words.insert(words.end(), more.begin(), more.end());
    return Run(words).out;
  };
  const std::string ten = plan({"--users", "10"});
  EXPECT_NE(ten.find("10 sequences at once"), std::string::npos) << ten;
  EXPECT_NE(ten.find("tokens/s for 10 users together"), std::string::npos) << ten;
  const std::string four = plan({"--users", "10", "--sequences", "4"});
  EXPECT_NE(four.find("4 sequences at once"), std::string::npos) << four;
  EXPECT_NE(four.find("tokens/s for 4 users together"), std::string::npos) << four;
  EXPECT_NE(four.find("of 10 users 4 are answered at once, the others wait"), std::string::npos)
      << four;
}

TEST_F(PlannerCommandsTest, OptionsThatContradictEachOtherAreUsageErrors) {
  const std::map<std::vector<std::string>, std::string> cases = {
      {{"--nodes", "one", "--exclude", "one"}, "the nodes asked for are all excluded"},
      {{"--nodes", "one", "--ranks", "2"}, "2 ranks were asked for on 1 node"},
      {{"--nodes", ""}, "nothing is named"},
      {{"--exclude", " ,"}, "nothing is named"},
      {{"--nodes", "oen"}, "did you mean 'one'?"},
      {{"--exclude", "tow"}, "did you mean 'two'?"},
  };
  for (const auto& [flags, expected] : cases) {
    std::vector<std::string> words = {"plan", "Qwen3-8B-4bit", "--cluster", Studios()};
    words.insert(words.end(), flags.begin(), flags.end());
    const CliRun run = Run(words);
    const bool is_unknown = expected.find("did you mean") != std::string::npos;
    EXPECT_EQ(run.exit_code, is_unknown ? kExitNotFound : kExitUsage) << expected;
    EXPECT_NE(run.err.find(expected), std::string::npos) << run.err;
  }
}

TEST_F(PlannerCommandsTest, TheTiersAreFilesThatCapacityAndPlanTake) {
  for (const char* tier : {"starter", "professional", "enterprise"}) {
    const std::string file = std::string("deploy/catalogue/tiers/") + tier + ".yaml";
    const CliRun by_name = Run({"capacity", "--tier", tier});
    EXPECT_EQ(by_name.exit_code, kExitOk) << by_name.err;
    EXPECT_EQ(by_name.out, Run({"capacity", "--cluster", file}).out);
    const CliRun plan = Run({"plan", "Llama-3.3-70B-Instruct-4bit", "--cluster", file});
    EXPECT_EQ(plan.exit_code, kExitOk) << plan.err;
  }
}

TEST_F(PlannerCommandsTest, ZeroIsAFigureAndOneModelOnOneMachineIsNoOffer) {
  const CliRun free = Run({"capacity", "--tier", "enterprise", "--tariff", "0"});
  EXPECT_NE(free.out.find("600 W / 1000 × £0.00"), std::string::npos) << free.out;
  const CliRun idle = Run({"capacity", "--tier", "enterprise", "--duty", "0"});
  EXPECT_NE(idle.out.find("30 d × 0 %"), std::string::npos) << idle.out;
  const std::string box = Write("box.yaml", "nodes:\n- {name: box, memory_gib: 64}\n");
  const CliRun one = Run({"capacity", "--cluster", box, "--models", "Qwen3-0.6B"});
  EXPECT_NE(one.out.find("MODEL "), std::string::npos) << one.out;
  EXPECT_EQ(one.out.find("MACHINES"), std::string::npos) << one.out;
  EXPECT_NE(one.out.find("the power of box is not known"), std::string::npos) << one.out;
}

TEST_F(PlannerCommandsTest, AMissingOrBrokenPlannerProgramIsSaid) {
  const CliRun missing = Run({"capacity", "--tier", "starter"}, folder_ + "/no-planner");
  EXPECT_EQ(missing.exit_code, kExitFailure);
  EXPECT_NE(missing.err.find("no-planner"), std::string::npos) << missing.err;
  const std::string broken = Write("broken", "#!/bin/sh\nexit 3\n");
  chmod(broken.c_str(), 0755);
  const CliRun failed = Run({"capacity", "--tier", "starter"}, broken);
  EXPECT_EQ(failed.exit_code, kExitFailure);
  EXPECT_NE(failed.err.find("ended with a failure"), std::string::npos) << failed.err;
  const std::string liar = Write("liar", "#!/bin/sh\necho garbage\n");
  chmod(liar.c_str(), 0755);
  const CliRun garbage = Run({"capacity", "--tier", "starter"}, liar);
  EXPECT_NE(garbage.err.find("can't be read"), std::string::npos) << garbage.err;
}

}  // namespace
}  // namespace macrame::cli
