#pragma once

// A ProcessSupervisor over processes of fake_rankd, on an owner thread of its own; the test's
// thread asks and waits.

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/supervisor/process_supervisor.h"
#include "tests/unit/fresh_folder.h"
#include "transport/asio_dispatcher.h"

namespace macrame::runtime {

class ProcessSupervisorTest : public testing::Test {
 protected:
  static constexpr auto kWaitLimit = std::chrono::seconds(20);

  void SetUp() override {
    options_.state_folder = FreshFolder();
    options_.node_id = "00112233445566778899aabbccddeeff";
    options_.rankd_path = FAKE_RANKD_PATH;
    options_.stop_grace = std::chrono::milliseconds(1500);
    options_.term_grace = std::chrono::milliseconds(300);
    options_.silence_limit = std::chrono::seconds(1);
    options_.first_report_limit = std::chrono::seconds(3);
    // Of no system that the tests happen to run on.
    options_.crash_report_folders.clear();
    options_.stack_sampler.clear();
    thread_ = std::thread([this] { dispatcher_.Run(); });
  }
  void TearDown() override {
    OnOwner([&] { supervisor_.reset(); });
    dispatcher_.Stop();
    thread_.join();
    std::filesystem::remove_all(options_.state_folder);
  }

  void OnOwner(std::function<void()> task) {
    std::promise<void> done;
    dispatcher_.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
  absl::Status Start() {
    absl::Status status;
    OnOwner([&] {
      supervisor_ = std::make_unique<ProcessSupervisor>(options_, &dispatcher_);
      status = supervisor_->Start();
    });
    return status;
  }
  v1::ReserveRequest Request(const std::string& deployment, uint64_t epoch, uint32_t rank,
                             uint64_t bytes = 1000) {
    v1::ReserveRequest request;
    request.set_deployment(deployment);
    request.set_epoch(epoch);
    request.set_hold_ms(20'000);
    request.mutable_assignment()->set_rank(rank);
    request.mutable_assignment()->mutable_need()->set_total_bytes(bytes);
    request.mutable_model()->set_path("/models/m");
    return request;
  }
  absl::StatusOr<v1::ReserveResponse> Reserve(const v1::ReserveRequest& request,
                                              uint64_t usable = 10'000) {
    absl::StatusOr<v1::ReserveResponse> response;
    OnOwner([&] {
      response = supervisor_->Reserve(request, "127.0.0.1", {Bytes(usable), Bytes(usable)});
    });
    return response;
  }
  absl::StatusOr<v1::LaunchResponse> Launch(const std::string& script,
                                            const std::string& deployment, uint64_t epoch,
                                            uint32_t rank) {
    v1::LaunchSpec spec;
    spec.set_deployment(deployment);
    spec.set_epoch(epoch);
    spec.set_rank(rank);
    spec.mutable_model()->set_name(script);
    absl::StatusOr<v1::LaunchResponse> response;
    OnOwner([&] { response = supervisor_->Launch(spec); });
    return response;
  }
  pid_t ReserveAndLaunch(const std::string& script, const std::string& deployment = "m",
                         uint64_t epoch = 1, uint32_t rank = 0) {
    const auto reserved = Reserve(Request(deployment, epoch, rank));
    EXPECT_TRUE(reserved.ok()) << reserved.status();
    const auto launched = Launch(script, deployment, epoch, rank);
    EXPECT_TRUE(launched.ok()) << launched.status();
    return launched.ok() ? static_cast<pid_t>(launched->pid()) : -1;
  }
  std::vector<v1::RankStatus> Statuses() {
    std::vector<v1::RankStatus> statuses;
    OnOwner([&] { statuses = supervisor_->Statuses(); });
    return statuses;
  }
  uint32_t StopRanks(const std::string& deployment, uint64_t epoch) {
    uint32_t told = 0;
    OnOwner([&] { told = supervisor_->StopRanks(deployment, epoch, "test"); });
    return told;
  }
  bool WaitUntil(const std::function<bool()>& happened) {
    const auto end = std::chrono::steady_clock::now() + kWaitLimit;
    while (!happened()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }
  bool WaitForPhase(v1::RankPhase phase) {
    return WaitUntil([&] {
      const auto statuses = Statuses();
      return statuses.size() == 1 && statuses[0].phase() == phase;
    });
  }
  bool WaitForFailure(v1::Reason* failure) {
    const bool failed = WaitUntil([&] {
      const bool gone = ReservedBytes() == 0;  // asked first: the evidence comes with the exit
      const auto statuses = Statuses();
      if (statuses.size() != 1 || statuses[0].phase() != v1::RANK_PHASE_FAILED) return false;
      *failure = statuses[0].failure();
      return gone;
    });
    return failed;
  }
  uint64_t ReservedBytes() {
    uint64_t bytes = 0;
    OnOwner([&] { bytes = supervisor_->ReservedBytes().count(); });
    return bytes;
  }
  std::string LogText(const std::string& name) {
    std::ifstream file(options_.state_folder + "/logs/" + name);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  size_t RunFileCount() {
    size_t count = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(options_.state_folder + "/ranks")) {
      count += entry.is_regular_file() || entry.is_socket() ? 1 : 0;
    }
    return count;
  }

  SupervisorOptions options_;
  transport::AsioDispatcher dispatcher_;
  std::thread thread_;
  std::unique_ptr<RankSupervisor> supervisor_;
};

}  // namespace macrame::runtime
