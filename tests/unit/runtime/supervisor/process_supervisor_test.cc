#include "runtime/supervisor/process_supervisor.h"

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "proto/reasons.h"
#include "runtime/supervisor/process_identity.h"
#include "runtime/supervisor/run_files.h"
#include "tests/unit/runtime/supervisor/process_supervisor_harness.h"
#include "transport/stream_socket.h"

extern char** environ;

namespace macrame::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;
constexpr uint64_t kAllEpochs = std::numeric_limits<uint64_t>::max();

TEST_F(ProcessSupervisorTest, ARankBecomesReadyAndStopsWhenAsked) {
  ASSERT_TRUE(Start().ok());
  const auto reserved = Reserve(Request("m", 1, 0, 4000));
  ASSERT_TRUE(reserved.ok()) << reserved.status();
  EXPECT_THAT(reserved->ring_address(), HasSubstr("127.0.0.1:"));
  EXPECT_THAT(reserved->step_address(), HasSubstr("127.0.0.1:"));
  EXPECT_NE(reserved->ring_address(), reserved->step_address());
  EXPECT_EQ(reserved->model_path(), "/models/m");
  EXPECT_EQ(ReservedBytes(), 4000u);
  EXPECT_TRUE(Statuses().empty()) << "a reservation is not a rank";
  const auto launched = Launch("ready", "m", 1, 0);
  ASSERT_TRUE(launched.ok()) << launched.status();
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  const v1::RankStatus status = Statuses()[0];
  EXPECT_EQ(status.deployment(), "m");
  EXPECT_EQ(status.node_id(), options_.node_id);
  EXPECT_EQ(status.pid(), launched->pid());
  EXPECT_EQ(status.memory_bytes(), 1234u);
  EXPECT_EQ(Launch("ready", "m", 1, 0)->pid(), launched->pid()) << "launching again";
  EXPECT_EQ(RunFileCount(), 2u) << "socket, note; the spec has been read";
  EXPECT_EQ(StopRanks("m", 1), 1u);
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_STOPPED));
  EXPECT_EQ(ReservedBytes(), 0u);
  EXPECT_EQ(RunFileCount(), 0u);
  EXPECT_EQ(kill(static_cast<pid_t>(launched->pid()), 0), -1) << "reaped";
}

// The fake rank reports MLX_METAL_FAST_SYNCH as it found it in its environment.
TEST_F(ProcessSupervisorTest, FastSynchronisationIsForJacclUnlessTheNodeOrAStallSaysOtherwise) {
  struct Case {
    FastSynch setting;
    const char* backend;
    bool suspended;
    const char* found;
    bool by_default;
  };
  const Case cases[] = {{FastSynch::kAuto, "jaccl", false, "1", true},
                        {FastSynch::kAuto, "jaccl", true, "unset", false},
                        {FastSynch::kAuto, "ring", false, "unset", false},
                        {FastSynch::kAuto, "single", false, "unset", false},
                        {FastSynch::kAuto, "verbs", false, "unset", false},
                        {FastSynch::kOff, "jaccl", false, "unset", false},
                        {FastSynch::kOn, "single", false, "1", false},
                        {FastSynch::kOn, "jaccl", true, "1", false}};
  for (const Case& one : cases) {
    SCOPED_TRACE(testing::Message() << one.backend << (one.suspended ? " suspended" : ""));
    options_.metal_fast_synch = one.setting;
    ASSERT_TRUE(Start().ok());
    ASSERT_TRUE(Reserve(Request("m", 1, 0)).ok());
    v1::LaunchSpec spec;
    spec.set_deployment("m");
    spec.set_epoch(1);
    spec.mutable_model()->set_name("ready");
    spec.set_backend(one.backend);
    spec.set_fast_synch_suspended(one.suspended);
    absl::StatusOr<v1::LaunchResponse> launched;
    OnOwner([&] { launched = supervisor_->Launch(spec); });
    ASSERT_TRUE(launched.ok()) << launched.status();
    EXPECT_EQ(Statuses()[0].fast_synch_by_default(), one.by_default) << "known before it reports";
    ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
    EXPECT_EQ(Statuses()[0].backend(), one.found);
    EXPECT_EQ(Statuses()[0].fast_synch_by_default(), one.by_default);
    StopRanks("m", 1);
    ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_STOPPED));
    OnOwner([&] { supervisor_.reset(); });
  }
}

TEST_F(ProcessSupervisorTest, LastLinesOfACrashAreKept) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("crash");
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_EQ(failure.code(), "RANK_EXITED");
  EXPECT_THAT(failure.message(), HasSubstr("code 7"));
  EXPECT_THAT(failure.message(), HasSubstr("the ceiling fell down"));
  EXPECT_EQ(failure.evidence(), "first line\nrankd: the ceiling fell down");
  EXPECT_EQ(failure.node_id(), options_.node_id);
  EXPECT_EQ(StopRanks("m", 1), 0u) << "nothing runs";
  EXPECT_TRUE(Statuses().empty()) << "but the failure is forgotten";
}

TEST_F(ProcessSupervisorTest, AFaultOfTheModelsFilesKeepsItsOwnCodeAndIsSaidOnce) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("model");
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_EQ(failure.code(), "TOKENIZER_INVALID");
  EXPECT_EQ(failure.message(), "/m/tokenizer.json: no such type");
  EXPECT_EQ(failure.remedy(), "fetch tokenizer.json and tokenizer_config.json again");
  EXPECT_EQ(failure.evidence(), "");
  EXPECT_EQ(failure.node_id(), options_.node_id);
}

TEST_F(ProcessSupervisorTest, LastLinesThatAreNoTextDoNotSpoilTheMessage) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("bytes");
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  v1::Reason read;
  EXPECT_TRUE(read.ParseFromString(failure.SerializeAsString()));
  EXPECT_GT(failure.evidence().size(), 4000u);
  EXPECT_LE(failure.evidence().size(), 4096u);
}

// Whoever started the agent may have had SIGCHLD ignored, which is inherited: the system would then
// reap ranks by itself and give their pids away.
TEST_F(ProcessSupervisorTest, ExitCodesAreKnownUnderAnIgnoredSigchld) {
  ASSERT_NE(signal(SIGCHLD, SIG_IGN), SIG_ERR);
  const absl::Status started = Start();
  v1::Reason failure;
  ReserveAndLaunch("crash");
  const bool failed = WaitForFailure(&failure);
  signal(SIGCHLD, SIG_DFL);
  ASSERT_TRUE(started.ok());
  ASSERT_TRUE(failed);
  EXPECT_THAT(failure.message(), HasSubstr("code 7"));
}

TEST_F(ProcessSupervisorTest, ASignalIsNamed) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("segfault");
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_EQ(failure.code(), "RANK_KILLED");
  EXPECT_THAT(failure.message(), HasSubstr("SIGSEGV"));
}

// What its GPU said is in the reason, with the next step; the code says what became of the process.
TEST_F(ProcessSupervisorTest, AFaultOfTheGpuIsToldWithItsNextStep) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("gpu-memory");
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_EQ(failure.code(), "RANK_KILLED");
  EXPECT_THAT(failure.message(), HasSubstr("the GPU had no memory left"));
  EXPECT_THAT(failure.remedy(), HasSubstr("a smaller context"));
}

TEST_F(ProcessSupervisorTest, SigkillFromOutsideIsToldWithItsLikelyCause) {
  ASSERT_TRUE(Start().ok());
  const pid_t pid = ReserveAndLaunch("ready");
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  kill(pid, SIGKILL);
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_EQ(failure.code(), "RANK_KILLED");
  EXPECT_THAT(failure.message(), HasSubstr("memory"));
}

TEST_F(ProcessSupervisorTest, TheRanksOwnReasonIsKept) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("failed");
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_EQ(failure.code(), "MODEL_FILE_BROKEN");
  EXPECT_EQ(failure.evidence(), "rankd: the file is broken");
}

TEST_F(ProcessSupervisorTest, SilenceIsAStall) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("mute");
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_EQ(failure.code(), "RANK_STALLED");
}

TEST_F(ProcessSupervisorTest, NeverReportingIsAStallToo) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("silent");
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_EQ(failure.code(), "RANK_STALLED");
  EXPECT_THAT(failure.message(), HasSubstr("did not report within 3 s"));
}

TEST_F(ProcessSupervisorTest, AStoppedProcessIsFoundOut) {
  ASSERT_TRUE(Start().ok());
  const pid_t pid = ReserveAndLaunch("ready");
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  kill(pid, SIGSTOP);
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_EQ(failure.code(), "RANK_STALLED");
}

TEST_F(ProcessSupervisorTest, AStubbornRankIsKilledInTheEnd) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("stubborn");
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  EXPECT_EQ(StopRanks("m", kAllEpochs), 1u);
  EXPECT_EQ(Statuses()[0].phase(), v1::RANK_PHASE_STOPPING);
  EXPECT_GT(ReservedBytes(), 0u) << "memory is promised until the process is gone";
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_STOPPED));
}

// A stopped process hears neither Stop nor SIGTERM; who knows that it stalled doesn't wait for
// both.
TEST_F(ProcessSupervisorTest, ARankThatStalledIsKilledWithoutBeingAsked) {
  options_.stop_grace = std::chrono::minutes(1);
  ASSERT_TRUE(Start().ok());
  const pid_t pid = ReserveAndLaunch("ready");
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  kill(pid, SIGSTOP);
  OnOwner([&] { EXPECT_EQ(supervisor_->StopRanks("m", 1, "it stalled", /*at_once=*/true), 1u); });
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_STOPPED));
}

TEST_F(ProcessSupervisorTest, ARankThatServesNothingStopsAtOnce) {
  options_.first_report_limit = std::chrono::minutes(1);
  options_.stop_grace = std::chrono::seconds(1);
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("silent");
  EXPECT_EQ(StopRanks("m", 1), 1u);
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_STOPPED));
}

TEST_F(ProcessSupervisorTest, AFloodOfOutputIsBounded) {
  options_.log_bytes_max = 1 << 20;
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("flood");
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_THAT(failure.evidence(), HasSubstr("the ceiling fell down"));
  const std::string logs = options_.state_folder + "/logs/m-rank0.log";
  EXPECT_LE(std::filesystem::file_size(logs), options_.log_bytes_max + 8192);
  EXPECT_LE(std::filesystem::file_size(logs + ".1"), options_.log_bytes_max + 8192);
}

TEST_F(ProcessSupervisorTest, MemoryIsPromisedOnce) {
  ASSERT_TRUE(Start().ok());
  ASSERT_TRUE(Reserve(Request("a", 1, 0, 6000)).ok());
  const auto second = Reserve(Request("b", 1, 0, 6000));
  EXPECT_EQ(ReasonOf(second.status()).code(), "MEMORY_SHORT");
  EXPECT_TRUE(Reserve(Request("a", 1, 0, 9000)).ok()) << "again replaces the first";
  StopRanks("a", 1);
  EXPECT_TRUE(Reserve(Request("b", 1, 0, 6000)).ok());
}

TEST_F(ProcessSupervisorTest, ReservationsLapse) {
  ASSERT_TRUE(Start().ok());
  v1::ReserveRequest request = Request("m", 1, 0);
  request.set_hold_ms(50);
  ASSERT_TRUE(Reserve(request).ok());
  ASSERT_TRUE(WaitUntil([&] { return ReservedBytes() == 0; }));
  EXPECT_EQ(ReasonOf(Launch("ready", "m", 1, 0).status()).code(), "RESERVATION_LAPSED");
}

TEST_F(ProcessSupervisorTest, AReservationOutlivesTheTermOfTheOneItReplaced) {
  ASSERT_TRUE(Start().ok());
  v1::ReserveRequest brief = Request("m", 1, 0);
  brief.set_hold_ms(200);
  ASSERT_TRUE(Reserve(brief).ok());
  // The third most likely lies where the first did.
  ASSERT_TRUE(Reserve(Request("m", 1, 0)).ok());
  ASSERT_TRUE(Reserve(Request("m", 1, 0)).ok());
  v1::ReserveRequest later = Request("later", 1, 0);
  later.set_hold_ms(300);
  ASSERT_TRUE(Reserve(later).ok());
  ASSERT_TRUE(WaitUntil([&] { return ReservedBytes() <= 1000; }));
  EXPECT_TRUE(Launch("ready", "m", 1, 0).ok());
}

TEST_F(ProcessSupervisorTest, OlderEpochsEndAndNewerStay) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("ready", "m", 1, 0);
  ReserveAndLaunch("ready", "m", 2, 0);
  ReserveAndLaunch("ready", "other", 1, 0);
  EXPECT_EQ(StopRanks("m", 1), 1u);
  ASSERT_TRUE(WaitUntil([&] {
    int ready = 0;
    int stopped = 0;
    for (const auto& status : Statuses()) {
      ready += status.phase() == v1::RANK_PHASE_READY ? 1 : 0;
      stopped += status.phase() == v1::RANK_PHASE_STOPPED && status.epoch() == 1 ? 1 : 0;
    }
    return ready == 2 && stopped == 1;
  }));
}

TEST_F(ProcessSupervisorTest, WithoutRankdNothingIsReserved) {
  options_.rankd_path = "/nonexistent/rankd";
  EXPECT_EQ(ReasonOf(Start()).code(), "ENGINE_MISSING");
  EXPECT_EQ(ReasonOf(Reserve(Request("m", 1, 0)).status()).code(), "ENGINE_MISSING");
}

TEST_F(ProcessSupervisorTest, AnAddressOfAnotherMachineIsRefused) {
  ASSERT_TRUE(Start().ok());
  absl::StatusOr<v1::ReserveResponse> response;
  OnOwner([&] {
    response = supervisor_->Reserve(Request("m", 1, 0), "192.0.2.1", {Bytes(10000), Bytes(10000)});
  });
  EXPECT_EQ(ReasonOf(response.status()).code(), "PORT_TAKEN");
}

struct Answer {
  std::string text;
  absl::Status status;
  bool done = false;
};

TEST_F(ProcessSupervisorTest, GenerateReachesTheEntryRank) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("ready");
  v1::GenerateRequest request;
  request.set_deployment("m");
  request.set_prompt("one two three");
  Answer early;
  Answer answer;
  const auto ask = [&](Answer* out) {
    supervisor_->Generate(
        request, [out](const v1::GenerateChunk& chunk) { out->text += chunk.text() + "|"; },
        [out](const absl::Status& status) {
          out->status = status;
          out->done = true;
        });
    EXPECT_FALSE(out->done) << "never from within the call";
  };
  const auto done = [&](Answer* out) {
    return WaitUntil([&] {
      bool is_done = false;
      OnOwner([&] { is_done = out->done; });
      return is_done;
    });
  };
  OnOwner([&] { ask(&early); });
  ASSERT_TRUE(done(&early));
  EXPECT_EQ(ReasonOf(early.status).code(), "NOT_READY");
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  OnOwner([&] { ask(&answer); });
  ASSERT_TRUE(done(&answer));
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.text, "one|two|three|");

  Answer refused;
  request.set_prompt("refuse");
  OnOwner([&] { ask(&refused); });
  ASSERT_TRUE(done(&refused));
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(refused.status).code(), "PROMPT_TOO_LONG");

  Answer unknown;
  request.set_deployment("nobody");
  OnOwner([&] { ask(&unknown); });
  ASSERT_TRUE(done(&unknown));
  EXPECT_EQ(ReasonOf(unknown.status).code(), "MODEL_NOT_LOADED");
}

TEST_F(ProcessSupervisorTest, GenerateEndsWhenCancelledOrTheRankDies) {
  ASSERT_TRUE(Start().ok());
  const pid_t pid = ReserveAndLaunch("ready");
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  v1::GenerateRequest request;
  request.set_deployment("m");
  request.set_prompt("word");
  request.set_max_tokens(1);  // the fake goes on until it is cancelled
  Answer answers[2];
  RankSupervisor::GenerateId first = 0;
  OnOwner([&] {
    for (Answer& answer : answers) {
      const auto id = supervisor_->Generate(
          request, [&answer](const v1::GenerateChunk& chunk) { answer.text += chunk.text(); },
          [&answer](const absl::Status& status) {
            answer.status = status;
            answer.done = true;
          });
      if (first == 0) first = id;
    }
  });
  const auto holds = [&](const std::function<bool()>& what) {
    return WaitUntil([&] {
      bool is_so = false;
      OnOwner([&] { is_so = what(); });
      return is_so;
    });
  };
  ASSERT_TRUE(holds([&] { return answers[0].text == "word" && answers[1].text == "word"; }));
  OnOwner([&] { supervisor_->CancelGenerate(first); });
  ASSERT_TRUE(holds([&] { return answers[0].done; }));
  EXPECT_EQ(answers[0].status.code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(answers[1].done);
  kill(pid, SIGKILL);
  ASSERT_TRUE(holds([&] { return answers[1].done; }));
  EXPECT_EQ(answers[1].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(answers[1].status).code(), "RANK_KILLED") << answers[1].status;
}

TEST_F(ProcessSupervisorTest, AVerificationIsAnsweredOrEndsWithItsRank) {
  ASSERT_TRUE(Start().ok());
  const pid_t pid = ReserveAndLaunch("ready");
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  std::optional<absl::StatusOr<v1::VerifyGroupResponse>> answer, endless;
  const auto ask = [&](uint32_t rounds, auto* into) {
    v1::VerifyGroupRequest request;
    request.set_rounds(rounds);
    OnOwner([&] {
      supervisor_->VerifyGroup("m", request, [into](auto got) { *into = std::move(got); });
    });
  };
  const auto has = [&](const auto& what) {
    return WaitUntil([&] {
      bool is_there = false;
      OnOwner([&] { is_there = what.has_value(); });
      return is_there;
    });
  };
  ask(1, &endless);
  ask(2, &answer);
  ASSERT_TRUE(has(answer));
  ASSERT_TRUE(answer->ok()) << answer->status();
  EXPECT_EQ((*answer)->group_size(), 2u);
  kill(pid, SIGKILL);
  ASSERT_TRUE(has(endless));
  EXPECT_EQ(endless->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(endless->status()).code(), "RANK_KILLED") << endless->status();
  OnOwner([&] { EXPECT_EQ(supervisor_->generations(), 0u); });
}

TEST_F(ProcessSupervisorTest, ShutDownEndsAllAndAdmitsNothing) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("ready", "a", 1, 0);
  ReserveAndLaunch("stubborn", "b", 1, 0);
  std::promise<void> done;
  OnOwner([&] { supervisor_->ShutDown([&] { done.set_value(); }); });
  EXPECT_EQ(done.get_future().wait_for(kWaitLimit), std::future_status::ready);
  EXPECT_EQ(ReservedBytes(), 0u);
  EXPECT_FALSE(Reserve(Request("c", 1, 0)).ok());
}

TEST_F(ProcessSupervisorTest, DestroyingTheSupervisorLeavesNoProcess) {
  ASSERT_TRUE(Start().ok());
  const pid_t pid = ReserveAndLaunch("stubborn");
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  OnOwner([&] { supervisor_.reset(); });
  EXPECT_EQ(kill(pid, 0), -1);
}

// A process that an earlier agent could have left: a group of its own, ignoring nothing.
pid_t StartSleeper() {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = -1;
  char name[] = "/bin/sleep";
  char seconds[] = "60";
  char* arguments[] = {name, seconds, nullptr};
  EXPECT_EQ(posix_spawn(&pid, name, nullptr, &attributes, arguments, environ), 0);
  posix_spawnattr_destroy(&attributes);
  return pid;
}

TEST_F(ProcessSupervisorTest, LeftoversOfAnEarlierAgentAreEnded) {
  RunFiles files(options_.state_folder);
  ASSERT_TRUE(files.Prepare().ok());
  const pid_t left = StartSleeper();
  const pid_t unrelated = StartSleeper();
  const RunPaths first = files.PathsOf(1, "m", 0);
  const RunPaths second = files.PathsOf(2, "m", 1);
  ASSERT_TRUE(files.WriteNote(first.note, {left, ProcessIdentity(left), "m", 1, 0}).ok());
  // The pid was given to another process since.
  ASSERT_TRUE(files.WriteNote(second.note, {unrelated, "another time", "m", 1, 1}).ok());
  std::ofstream(options_.state_folder + "/ranks/broken.json") << "{\"pid\": -1}";
  ASSERT_TRUE(Start().ok());
  int status = 0;
  ASSERT_EQ(waitpid(left, &status, 0), left);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(waitpid(unrelated, &status, WNOHANG), 0) << "still runs";
  EXPECT_EQ(RunFileCount(), 0u);
  kill(unrelated, SIGKILL);
  waitpid(unrelated, &status, 0);
}

TEST_F(ProcessSupervisorTest, TheLaunchSpecIsPrivateAndNamesTheReservedFolder) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("silent");  // its spec names no folder at all
  bool found = false;
  for (const auto& entry : std::filesystem::directory_iterator(options_.state_folder + "/ranks")) {
    if (entry.path().extension() != ".spec") continue;
    found = true;
    EXPECT_EQ(entry.status().permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    std::ifstream file(entry.path(), std::ios::binary);
    v1::LaunchSpec spec;
    ASSERT_TRUE(spec.ParseFromIstream(&file));
    EXPECT_EQ(spec.model().path(), "/models/m");
  }
  EXPECT_TRUE(found);
}

// The gang's secret is in it.
TEST_F(ProcessSupervisorTest, TheLaunchSpecIsGoneOnceTheRankHasReadIt) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("ready");
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  for (const auto& entry : std::filesystem::directory_iterator(options_.state_folder + "/ranks")) {
    EXPECT_NE(entry.path().extension(), ".spec") << entry.path();
  }
}

TEST_F(ProcessSupervisorTest, APortIsNeverFreeBetweenReservationAndEnd) {
  ASSERT_TRUE(Start().ok());
  const auto reserved = Reserve(Request("m", 1, 0));
  ASSERT_TRUE(reserved.ok()) << reserved.status();
  const auto taken = [&] {
    return !transport::StreamSocket::Listen(reserved->ring_address()).ok() &&
           !transport::StreamSocket::Listen(reserved->step_address()).ok();
  };
  EXPECT_TRUE(taken());
  ASSERT_TRUE(Launch("ready", "m", 1, 0).ok());
  EXPECT_TRUE(taken()) << "the process has the sockets from its start on";
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  EXPECT_TRUE(taken());
  StopRanks("m", kAllEpochs);
  EXPECT_TRUE(WaitUntil([&] { return !taken(); })) << "the agent keeps none of them";
}

TEST_F(ProcessSupervisorTest, ARankIsToldWhichSocketsItInherits) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("sockets", "m", 1, 0);
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  const auto statuses = Statuses();
  ASSERT_EQ(statuses.size(), 1u);
  EXPECT_THAT(failure.evidence(), HasSubstr("--ring-socket is bound\n--step-socket is bound"));
}

TEST_F(ProcessSupervisorTest, OnlyTheFirstRankHasAPortForSteps) {
  ASSERT_TRUE(Start().ok());
  const auto later = Reserve(Request("m", 1, 3));
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_NE(later->ring_address(), "");
  EXPECT_EQ(later->step_address(), "");
}

// A Mac with plenty of memory, and a GPU that can keep 10,000 bytes of it resident.
TEST_F(ProcessSupervisorTest, RanksOfAllModelsShareTheWorkingSet) {
  ASSERT_TRUE(Start().ok());
  const NodeMemory mac{Bytes(100'000), Bytes(100'000), Bytes(10'000)};
  const auto reserve = [&](const std::string& deployment, uint64_t weights, uint64_t cache) {
    v1::ReserveRequest request = Request(deployment, 1, 0, weights + cache + 500);
    v1::Assignment& part = *request.mutable_assignment();
    part.set_hostname("studio-1");
    part.mutable_need()->set_weights_bytes(weights);
    part.mutable_need()->set_kv_cache_bytes(cache);
    absl::Status status;
    OnOwner([&] { status = supervisor_->Reserve(request, "127.0.0.1", mac).status(); });
    return status;
  };
  EXPECT_TRUE(reserve("a", 4'000, 1'000).ok());
  EXPECT_TRUE(reserve("b", 2'000, 1'000).ok());
  const absl::Status refused = reserve("c", 2'000, 1);
  EXPECT_EQ(ReasonOf(refused).code(), "MEMORY_SHORT");
  EXPECT_THAT(ReasonOf(refused).message(), AllOf(HasSubstr("studio-1"), HasSubstr("of c")));
  EXPECT_TRUE(reserve("c", 2'000, 0).ok());
  // A second call for the same rank replaces the first.
  EXPECT_TRUE(reserve("a", 5'000, 0).ok());
}

// However small they are: each has threads, files and a port.
TEST_F(ProcessSupervisorTest, RanksAreNoMoreThanMayBe) {
  options_.ranks_max = 3;
  ASSERT_TRUE(Start().ok());
  for (uint32_t rank = 0; rank < 3; ++rank) ASSERT_TRUE(Reserve(Request("m", 1, rank, 1)).ok());
  const auto fourth = Reserve(Request("m", 1, 3, 1));
  EXPECT_EQ(ReasonOf(fourth.status()).code(), "MEMORY_SHORT");
  EXPECT_THAT(ReasonOf(fourth.status()).message(), HasSubstr("3 ranks, as many as may be"));
  EXPECT_EQ(ReasonOf(fourth.status()).node_id(), options_.node_id);
  EXPECT_TRUE(Reserve(Request("m", 1, 2, 1)).ok()) << "one that is replaced does not count";
  StopRanks("m", 1);
  EXPECT_TRUE(Reserve(Request("m", 2, 0, 1)).ok());
}

TEST_F(ProcessSupervisorTest, ARankThatRunsIsNotReservedAnew) {
  ASSERT_TRUE(Start().ok());
  const pid_t pid = ReserveAndLaunch("ready");
  EXPECT_EQ(ReasonOf(Reserve(Request("m", 1, 0)).status()).code(), "SNAPSHOT_STALE");
  EXPECT_TRUE(Reserve(Request("m", 2, 0)).ok()) << "of the next epoch";
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  EXPECT_EQ(Statuses()[0].pid(), static_cast<uint64_t>(pid));
}

TEST_F(ProcessSupervisorTest, EpochsBeforeTheFirstThatIsMeantStay) {
  ASSERT_TRUE(Start().ok());
  for (const uint64_t epoch : {1, 2, 3, 4}) ASSERT_TRUE(Reserve(Request("m", epoch, 0, 1)).ok());
  ReserveAndLaunch("ready", "m", 5, 0);
  uint32_t told = 0;
  OnOwner(
      [&] { told = supervisor_->StopRanks("m", 3, "test", /*at_once=*/false, /*from_epoch=*/2); });
  EXPECT_EQ(told, 0u) << "reservations are no processes";
  EXPECT_EQ(ReservedBytes(), 2u + 1000u) << "of epochs 1, 4 and 5";
  EXPECT_TRUE(Launch("ready", "m", 4, 0).ok());
  EXPECT_EQ(ReasonOf(Launch("ready", "m", 3, 0).status()).code(), "RESERVATION_LAPSED");
}

TEST_F(ProcessSupervisorTest, AtOnceNobodyIsAsked) {
  options_.stop_grace = std::chrono::minutes(5);
  ASSERT_TRUE(Start().ok());
  const pid_t pid = ReserveAndLaunch("stubborn");
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  EXPECT_EQ(StopRanks("m", 1), 1u) << "asked first";
  OnOwner([&] { supervisor_->StopRanks("", kAllEpochs, "test", /*at_once=*/true); });
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_STOPPED)) << "which no grace holds up";
  EXPECT_EQ(kill(pid, 0), -1);
}

// A deployment that crashes for ever must not fill the agent's memory nor every heartbeat.
TEST_F(ProcessSupervisorTest, EndsThatAreKeptAreBoundedAndTheNewest) {
  options_.ended_statuses_max = 2;
  ASSERT_TRUE(Start().ok());
  for (const uint64_t epoch : {1, 2, 3, 4}) {
    ReserveAndLaunch("crash", "m", epoch, 0);
    ASSERT_TRUE(WaitUntil([&] { return ReservedBytes() == 0; }));
  }
  const auto statuses = Statuses();
  ASSERT_EQ(statuses.size(), 2u);
  EXPECT_EQ(statuses[0].epoch(), 3u);
  EXPECT_EQ(statuses[1].epoch(), 4u);
  StopRanks("m", 3);
  ASSERT_EQ(Statuses().size(), 1u) << "seen, and so forgotten";
}

TEST_F(ProcessSupervisorTest, AStateFolderThatIsTooLongForSocketsIsSaid) {
  const std::string short_folder = options_.state_folder;
  options_.state_folder += "/" + std::string(100, 'x');
  ASSERT_TRUE(Start().ok());
  ASSERT_TRUE(Reserve(Request("m", 1, 0)).ok());
  const auto launched = Launch("ready", "m", 1, 0);
  EXPECT_EQ(ReasonOf(launched.status()).code(), "RANK_EXITED") << launched.status();
  EXPECT_THAT(ReasonOf(launched.status()).message(), HasSubstr("use a shorter state folder"));
  EXPECT_EQ(ReservedBytes(), 0u) << "its memory and ports are given back";
  EXPECT_EQ(RunFileCount(), 0u);
  OnOwner([&] { supervisor_.reset(); });
  options_.state_folder = short_folder;  // to be removed
}

TEST_F(ProcessSupervisorTest, WhoAsksARankThatIsNotReadyIsAnswered) {
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("silent");
  absl::Status verified, traced, other;
  OnOwner([&] {
    supervisor_->VerifyGroup("m", {}, [&](const auto& answer) { verified = answer.status(); });
    supervisor_->VerifyGroup("n", {}, [&](const auto& answer) { other = answer.status(); });
    v1::TraceRankRequest request;
    request.set_deployment("m");
    supervisor_->TraceRanks(request, [&](const auto& answer) { traced = answer.status(); });
    supervisor_->CancelGenerate(4711);  // of nobody
  });
  EXPECT_EQ(ReasonOf(verified).code(), "NOT_READY") << verified;
  EXPECT_EQ(ReasonOf(other).code(), "MODEL_NOT_LOADED") << other;
  EXPECT_EQ(ReasonOf(traced).code(), "NOT_READY") << traced;
  EXPECT_THAT(ReasonOf(traced).message(), HasSubstr("no rank of m"));
}

}  // namespace
}  // namespace macrame::runtime
