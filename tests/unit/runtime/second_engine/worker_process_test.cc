#include "runtime/second_engine/worker_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "proto/reasons.h"
#include "runtime/second_engine/mlx_lm.h"
#include "tests/unit/runtime/second_engine/fake_python.h"

namespace macrame::runtime {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr milliseconds kLimit{20'000};

std::unique_ptr<WorkerProcess> Started(const std::string& mode) {
  auto worker = WorkerProcess::Start(FakePython(mode), "no script", /*shows_errors=*/false);
  EXPECT_TRUE(worker.ok()) << worker.status().ToString();
  return worker.ok() ? *std::move(worker) : nullptr;
}

bool IsThere(pid_t pid) { return kill(pid, 0) == 0; }

TEST(WorkerProcess, AnswersInFrames) {
  const auto worker = Started("");
  ASSERT_NE(worker, nullptr);
  EXPECT_EQ(worker->Receive(kLimit)->kind, 'H');
  ASSERT_TRUE(worker->Send('D', "").ok());
  const auto described = worker->Receive(kLimit);
  ASSERT_TRUE(described.ok()) << described.status().ToString();
  EXPECT_EQ(described->kind, 'D');
  EXPECT_THAT(described->payload, HasSubstr("martian"));
}

TEST(WorkerProcess, AProgramThatIsNotThereIsNamedWithTheRemedy) {
  const auto worker = WorkerProcess::Start("/nowhere/python3", "", false);
  ASSERT_FALSE(worker.ok());
  const v1::Reason reason = ReasonOf(worker.status());
  EXPECT_EQ(reason.code(), "ENGINE_MISSING");
  EXPECT_THAT(reason.message(), AllOf(HasSubstr("/nowhere/python3"), HasSubstr("No such file")));
  EXPECT_THAT(reason.remedy(), HasSubstr("mlx_lm_python"));
  EXPECT_EQ(ReasonOf(WorkerProcess::Start("", "", false).status()).code(), "ENGINE_MISSING");
}

TEST(WorkerProcess, WhatItSaysWentWrongComesWithItsOwnCode) {
  const auto worker = Started("lacks");
  const auto hello = worker->Receive(kLimit);
  EXPECT_EQ(ReasonOf(hello.status()).code(), "ENGINE_MISSING");
  EXPECT_EQ(ReasonOf(hello.status()).message(), "fakepython has no mlx_lm");
  EXPECT_EQ(ReasonOf(hello.status()).remedy(), "install it");
}

TEST(WorkerProcess, HowItEndedIsTold) {
  const auto exits = Started("exits");
  const auto hello = exits->Receive(kLimit);
  EXPECT_EQ(ReasonOf(hello.status()).code(), "ENGINE_FAILED");
  EXPECT_THAT(ReasonOf(hello.status()).message(),
              AllOf(HasSubstr("fake-python"), HasSubstr("ended with code 3")));
  const auto killed = Started("");
  ASSERT_TRUE(killed->Receive(kLimit).ok());
  kill(killed->pid(), SIGKILL);
  EXPECT_THAT(ReasonOf(killed->Receive(kLimit).status()).message(),
              HasSubstr("was ended by signal 9"));
}

// Whoever asks again is told the same: the first answer may have been nobody's to show.
TEST(WorkerProcess, HowItEndedIsToldAsOftenAsAsked) {
  const auto killed = Started("");
  ASSERT_TRUE(killed->Receive(kLimit).ok());
  kill(killed->pid(), SIGKILL);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(ReasonOf(killed->Receive(kLimit).status()).message(),
                HasSubstr("was ended by signal 9"));
  }
  EXPECT_THAT(ReasonOf(killed->Send('D', "")).message(), HasSubstr("was ended by signal 9"));
  const auto exits = Started("exits");
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(ReasonOf(exits->Receive(kLimit).status()).message(),
                HasSubstr("ended with code 3"));
  }
}

// An end is seen from another thread without being taken from who reaps it.
TEST(WorkerProcess, AnEndIsAwaitedWithoutBeingReaped) {
  const auto worker = Started("");
  ASSERT_TRUE(worker->Receive(kLimit).ok());
  absl::Status seen;
  std::thread waiting([&] { seen = WorkerProcess::AwaitEnd(worker->pid()); });
  kill(worker->pid(), SIGTERM);
  waiting.join();
  EXPECT_EQ(ReasonOf(seen).code(), "ENGINE_FAILED");
  EXPECT_THAT(ReasonOf(seen).message(),
              AllOf(HasSubstr(std::to_string(worker->pid())), HasSubstr("was ended by signal 15")));
  EXPECT_THAT(ReasonOf(worker->Receive(kLimit).status()).message(),
              HasSubstr("was ended by signal 15"));
  EXPECT_TRUE(WorkerProcess::AwaitEnd(worker->pid()).ok()) << "reaped, and so known of";
}

TEST(WorkerProcess, SilenceAndNonsenseEndInBoundedTime) {
  EXPECT_THAT(ReasonOf(Started("silent")->Receive(milliseconds(1000)).status()).message(),
              HasSubstr("said nothing for 1 s"));
  // "Hello th" read as a length.
  EXPECT_THAT(ReasonOf(Started("garbage")->Receive(kLimit).status()).message(),
              HasSubstr("announces"));
}

TEST(WorkerProcess, WhoWaitsCanBeStopped) {
  const auto worker = Started("silent");
  std::atomic<bool> stop = false;
  worker->StopWith(&stop);
  std::thread later([&] { stop = true; });
  EXPECT_TRUE(absl::IsCancelled(worker->Receive({}).status()));
  later.join();
}

TEST(WorkerProcess, NothingIsLeftOfOneThatDoesNotEnd) {
  auto worker = Started("stubborn");
  ASSERT_TRUE(worker->Receive(kLimit).ok());
  const pid_t pid = worker->pid();
  ASSERT_TRUE(IsThere(pid));
  worker.reset();
  EXPECT_FALSE(IsThere(pid));
}

TEST(MlxLm, IsAskedOnceForAllThatItKnows) {
  const std::string python = FakePython("");
  const auto found = AskMlxLm(python, kLimit);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->python, python);
  EXPECT_EQ(found->version, "0.99.1");
  EXPECT_EQ(found->architectures.size(), 2u);
  EXPECT_TRUE(found->architectures.at("martian").tensor());
  EXPECT_FALSE(found->architectures.at("venusian").tensor());
}

TEST(MlxLm, WhatIsLackingIsSaid) {
  const SecondEngine lacking = FindMlxLm(FakePython("lacks"));
  EXPECT_FALSE(lacking.mlx_lm.has_value());
  EXPECT_EQ(lacking.why_not, "fakepython has no mlx_lm");
  EXPECT_TRUE(FindMlxLm(FakePython("")).why_not.empty());
}

TEST(MlxLm, AnAnswerThatIsNoneIsNamedWithItsPython) {
  for (const char* mode : {"on H say H [1]", "on H say H no JSON", "on H say D {}", "on D say D []",
                           "on D say L {}", "on D say D {\"martian\":1}", "on D say D "}) {
    const std::string python = FakePython(mode);
    const auto found = AskMlxLm(python, kLimit);
    EXPECT_EQ(ReasonOf(found.status()).code(), "ENGINE_FAILED") << mode;
    EXPECT_THAT(ReasonOf(found.status()).message(),
                AllOf(HasSubstr(python), HasSubstr("can't be read")))
        << mode;
  }
}

// Ways that it does not name, or names by another kind of value, it does not have.
TEST(MlxLm, WhatItDoesNotSayItDoesNotHave) {
  const auto found =
      AskMlxLm(FakePython("on D say D {\"a\":{},\"b\":{\"tensor\":1,\"pipeline\":true}}"), kLimit);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->architectures.at("a").tensor());
  EXPECT_FALSE(found->architectures.at("a").pipeline());
  EXPECT_FALSE(found->architectures.at("b").tensor());
  EXPECT_TRUE(found->architectures.at("b").pipeline());
  const auto nameless = AskMlxLm(FakePython("on H say H {\"version\":7}"), kLimit);
  ASSERT_TRUE(nameless.ok()) << nameless.status();
  EXPECT_EQ(nameless->version, "");
}

TEST(MlxLm, LooksWhereItUsuallyIsUnlessItIsTold) {
  EXPECT_THAT(PythonCandidates("/my/python", "/a:/b", "/home/ada"), ElementsAre("/my/python"));
  const auto usual = PythonCandidates("", "/a::b:/a", "/home/ada");
  ASSERT_GE(usual.size(), 3u);
  EXPECT_EQ(usual[0], "/home/ada/.macrame/mlx-lm/bin/python3");
  EXPECT_EQ(usual[1], "/a/python3");
  EXPECT_THAT(usual, testing::Not(testing::Contains("b/python3")));
  EXPECT_EQ(std::count(usual.begin(), usual.end(), "/a/python3"), 1);
}

}  // namespace
}  // namespace macrame::runtime
