#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/exit_codes.h"
#include "tests/unit/cli/cli_run.h"
#include "tests/unit/runtime/gguf/gguf_writer.h"

namespace macrame::cli {
namespace {

namespace fs = std::filesystem;
using runtime::gguf::SmallModel;
using runtime::gguf::WriteGguf;
using testing::HasSubstr;

class ModelImportTest : public ::testing::Test {
 protected:
  CliRun Run(std::vector<std::string> arguments, const std::string& rankd = MACRAME_RANKD) {
    CliWorld world;
    world.variables["MACRAME_RANKD"] = rankd;
    world.variables["HOME"] = home_;
    arguments.insert(arguments.begin(), {"model", "import"});
    return Clusterctl(arguments, world);
  }

  // A program of these lines in place of rankd.
  std::string Script(const std::string& lines) {
    const std::string path = home_ + "/program";
    std::ofstream(path) << "#!/bin/sh\n" << lines << "\n";
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }

  const std::string file_ = WriteGguf("small.gguf", SmallModel("llama").Bytes());
  const std::string home_ = fs::path(file_).parent_path().string();
};

TEST_F(ModelImportTest, SaysWhatItMadeAndHowToLoadIt) {
  const CliRun run = Run({file_});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_THAT(run.out, HasSubstr("Imported small (llama"));
  EXPECT_THAT(run.out, HasSubstr("4 bits in groups of 32  exact"));
  EXPECT_THAT(run.out, HasSubstr("Load it: clusterctl model load small\n"));
  EXPECT_EQ(run.err, "");
  EXPECT_TRUE(fs::exists(home_ + "/.macrame/models/small/tokenizer.json"));
}

TEST_F(ModelImportTest, GivesADocument) {
  const CliRun run = Run({file_, "--into", home_ + "/else", "--name", "mine", "-o", "json"});
  ASSERT_EQ(run.exit_code, kExitOk) << run.err;
  const auto document = nlohmann::json::parse(run.out);
  EXPECT_EQ(document["kind"], "ModelImport");
  EXPECT_EQ(document["model"]["path"], home_ + "/else/mine");
  EXPECT_EQ(document["kinds"].size(), 3u);
}

TEST_F(ModelImportTest, ReasonsComeThrough) {
  const CliRun missing = Run({home_ + "/none.gguf"});
  EXPECT_EQ(missing.exit_code, kExitNotFound);
  EXPECT_THAT(missing.err, HasSubstr("MODEL_FILE_MISSING"));
  ASSERT_EQ(Run({file_}).exit_code, kExitOk);
  const CliRun again = Run({file_});
  EXPECT_EQ(again.exit_code, kExitConflict);
  EXPECT_THAT(again.err, HasSubstr("MODEL_EXISTS"));
  EXPECT_THAT(again.err, HasSubstr("another name"));
  EXPECT_THAT(Run({file_, "--into", file_}).err, HasSubstr("DISK_WRITE_FAILED"));
}

TEST_F(ModelImportTest, WhatIsNoFileIsRefusedAndNotWaitedFor) {
  const std::string pipe = home_ + "/pipe.gguf";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const CliRun run = Run({pipe});
  EXPECT_NE(run.exit_code, kExitOk);
  EXPECT_THAT(run.err, HasSubstr(pipe + " is a pipe, not a file"));
  fs::create_directory(home_ + "/words");
  ASSERT_EQ(::mkfifo((home_ + "/words/tokenizer.json").c_str(), 0600), 0);
  EXPECT_THAT(Run({file_, "--tokenizer", home_ + "/words"}).err,
              HasSubstr("/words/tokenizer.json is a pipe, not a file"));
  EXPECT_FALSE(fs::exists(home_ + "/.macrame/models/small"));
}

TEST_F(ModelImportTest, AProgramThatDoesNotDoItsPartIsNamed) {
  EXPECT_THAT(Run({file_}, "/nowhere/rankd").err, HasSubstr("can't be started"));
  EXPECT_THAT(Run({file_}, Script("exit 3")).err, HasSubstr("ended with a failure"));
  EXPECT_THAT(Run({file_}, Script("exec yes")).err, HasSubstr("an answer that can't be read"));
  EXPECT_THAT(Run({file_}, Script("exit 0")).err, HasSubstr("an answer that can't be read"));
}

TEST_F(ModelImportTest, CtrlCStopsIt) {
  const std::string endless = Script("touch " + home_ + "/runs; exec cat /dev/zero");
  std::thread person([&] {
    while (!fs::exists(home_ + "/runs")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    kill(getpid(), SIGINT);
  });
  const CliRun run = Run({file_}, endless);
  person.join();
  EXPECT_EQ(run.exit_code, kExitInterrupted);
  EXPECT_THAT(run.err, HasSubstr("Stopped"));
}

}  // namespace
}  // namespace macrame::cli
