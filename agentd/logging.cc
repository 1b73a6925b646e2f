#include "agentd/logging.h"

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <filesystem>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {

absl::Status StartLogging(const std::string& level, const std::string& file) {
  auto logger = std::make_shared<spdlog::logger>("agentd");
  logger->sinks().push_back(std::make_shared<spdlog::sinks::stderr_sink_mt>());
  absl::Status status = absl::OkStatus();
  try {
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder);
    logger->sinks().push_back(std::make_shared<spdlog::sinks::rotating_file_sink_mt>(
        file, kLogBytesMax, kLogFilesMax - 1));
  } catch (const std::exception& error) {
    status = absl::PermissionDeniedError(
        absl::StrCat("log_file: ", file, " can't be written: ", error.what()));
  }
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  spdlog::set_default_logger(std::move(logger));
  return status;
}

}  // namespace macrame::agentd
