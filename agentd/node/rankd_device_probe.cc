#include "agentd/node/rankd_device_probe.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "runtime/supervisor/rank_supervisor.h"

namespace macrame::agentd {

std::optional<uint64_t> ParseDeviceMemory(const std::string& text) {
  absl::string_view number(text);
  uint64_t bytes = 0;
  if (!absl::ConsumePrefix(&number, "working_set_bytes ")) return std::nullopt;
  if (!absl::SimpleAtoi(number, &bytes) || bytes == 0) return std::nullopt;
  return bytes;
}

void RankdDeviceProbe::Start(std::string rankd_path, Found found) {
  if (rankd_path.empty()) rankd_path = runtime::RankdBesideThisProgram();
  thread_ = std::thread([this, rankd = std::move(rankd_path), found = std::move(found),
                         weak = std::weak_ptr<bool>(alive_)] {
    discovery::Command command;
    command.argv = {rankd, "--device-memory"};
    command.limit = kDeviceProbeLimit;
    const discovery::CommandResult result = runner_.Run(command);
    if (!result.Succeeded() && result.outcome != discovery::CommandOutcome::kNotRun) {
      spdlog::warn("rankd did not report the GPU's memory, so an estimate holds: {}",
                   discovery::DescribeOutcome(command, result));
    }
    const auto bytes = result.Succeeded() ? ParseDeviceMemory(result.out) : std::nullopt;
    dispatcher_.Post([weak, found, bytes] {
      if (!weak.expired()) found(bytes);
    });
  });
}

void RankdDeviceProbe::Stop() {
  alive_.reset();
  runner_.Stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace macrame::agentd
