#include "agentd/node/model_describer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "macrame/v1/planner.pb.h"
#include "proto/reasons.h"
#include "runtime/second_engine/engine_facts.h"

namespace macrame::agentd {
namespace {

using discovery::Command;
using discovery::CommandOutcome;
using discovery::CommandResult;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Answers what the test says, and keeps what was asked.
class ScriptedRunner : public discovery::CommandRunner {
 public:
  CommandResult Run(const Command& command) override {
    asked = command;
    return result;
  }
  Command asked;
  CommandResult result;
};

class ModelDescriberTest : public ::testing::Test {
 protected:
  absl::StatusOr<v1::ModelDescription> Describe(CommandResult result) {
    runner_->result = std::move(result);
    return ModelDescriber(runner_, "/opt/rankd").Describe("/models/m", second_);
  }
  static CommandResult Exited(int code, std::string out, std::string err = "") {
    CommandResult result;
    result.outcome = CommandOutcome::kExited;
    result.exit_code = code;
    result.out = std::move(out);
    result.err = std::move(err);
    return result;
  }

  std::shared_ptr<ScriptedRunner> runner_ = std::make_shared<ScriptedRunner>();
  runtime::SecondEngine second_;
};

TEST_F(ModelDescriberTest, RankdIsAskedWithWhatIsKnownOfTheSecondEngine) {
  second_.mlx_lm = runtime::MlxLm{"/usr/bin/python3", "0.32.2", "metal", {}};
  second_.mlx_lm->architectures["mamba"].set_pipeline(true);
  second_.mlx_lm->architectures["bitnet"].set_tensor(true);
  v1::ModelFolderAnswer answer;
  answer.mutable_model()->set_architecture("llama");
  const auto described = Describe(Exited(0, answer.SerializeAsString()));
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_EQ(described->architecture(), "llama");
  ASSERT_EQ(runner_->asked.argv.size(), 5u);
  EXPECT_THAT(std::vector<std::string>(runner_->asked.argv.begin(), runner_->asked.argv.end() - 1),
              ElementsAre("/opt/rankd", "--describe", "/models/m", "--second-engine"));
  const auto told = runtime::ParseSecondEngine(runner_->asked.argv[4]);
  ASSERT_TRUE(told.has_value() && told->mlx_lm.has_value());
  EXPECT_EQ(told->mlx_lm->python, "/usr/bin/python3");
  EXPECT_TRUE(told->mlx_lm->architectures.at("mamba").pipeline());
  EXPECT_FALSE(told->mlx_lm->architectures.at("mamba").tensor());
  EXPECT_TRUE(told->mlx_lm->architectures.at("bitnet").tensor());
}

TEST_F(ModelDescriberTest, WhatRankdRefusesKeepsItsReason) {
  v1::ModelFolderAnswer answer;
  *answer.mutable_failure() = MakeReason("MODEL_CONFIG_INVALID", "config.json is missing");
  const auto described = Describe(Exited(0, answer.SerializeAsString()));
  EXPECT_EQ(ReasonOf(described.status()).code(), "MODEL_CONFIG_INVALID");
}

TEST_F(ModelDescriberTest, AFolderThatAsksForTooMuchIsNamedWithTheLimit) {
  CommandResult late;
  late.outcome = CommandOutcome::kTimedOut;
  CommandResult killed;
  killed.outcome = CommandOutcome::kSignalled;
  killed.signal = 6;
  const CommandResult fat =
      Exited(73, "", "rankd: looking at the model takes more than 1024 MiB of memory\n");
  for (const auto& [result, words] : {std::pair{late, "60000 ms"}, std::pair{killed, "6"},
                                      std::pair{fat, "1024 MiB of memory"}}) {
    const auto described = Describe(result);
    EXPECT_EQ(ReasonOf(described.status()).code(), "MODEL_FILE_BROKEN");
    EXPECT_THAT(ReasonOf(described.status()).message(),
                AllOf(HasSubstr("/models/m can't be looked at"), HasSubstr(words)));
  }
}

TEST_F(ModelDescriberTest, WithoutRankdNothingIsLookedAt) {
  CommandResult missing;
  missing.outcome = CommandOutcome::kNotFound;
  EXPECT_EQ(ReasonOf(Describe(missing).status()).code(), "ENGINE_MISSING");
  EXPECT_EQ(ReasonOf(Describe(Exited(0, "\xff\xff")).status()).code(), "MODEL_FILE_BROKEN");
}

}  // namespace
}  // namespace macrame::agentd
