#include "agentd/logging.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/cores/log_guard.h"

namespace macrame::agentd {
namespace {

// The one place that every line passes: hands it on as LogGuard leaves it.
class GuardedSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit GuardedSink(std::vector<spdlog::sink_ptr> sinks) : sinks_(std::move(sinks)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::optional<std::string> line =
        guard_.Take(std::string_view(message.payload.data(), message.payload.size()),
                    std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()));
    if (!line.has_value()) return;
    spdlog::details::log_msg guarded = message;
    guarded.payload = spdlog::string_view_t(line->data(), line->size());
    for (const spdlog::sink_ptr& sink : sinks_) sink->log(guarded);
  }
  void flush_() override {
    for (const spdlog::sink_ptr& sink : sinks_) sink->flush();
  }
  void set_formatter_(std::unique_ptr<spdlog::formatter> formatter) override {
    for (const spdlog::sink_ptr& sink : sinks_) sink->set_formatter(formatter->clone());
  }

 private:
  std::vector<spdlog::sink_ptr> sinks_;
  LogGuard guard_;
};

}  // namespace

absl::Status StartLogging(const std::string& level, const std::string& file, bool to_stderr) {
  std::vector<spdlog::sink_ptr> sinks;
  absl::Status status = absl::OkStatus();
  try {
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder);
    sinks.push_back(std::make_shared<spdlog::sinks::rotating_file_sink_mt>(file, kLogBytesMax,
                                                                           kLogFilesMax - 1));
  } catch (const std::exception& error) {
    status = absl::PermissionDeniedError(
        absl::StrCat("log_file: ", file, " can't be written: ", error.what()));
  }
  if (to_stderr || !status.ok()) {
    sinks.push_back(std::make_shared<spdlog::sinks::stderr_sink_mt>());
  }
  auto logger =
      std::make_shared<spdlog::logger>("agentd", std::make_shared<GuardedSink>(std::move(sinks)));
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  spdlog::set_default_logger(std::move(logger));
  return status;
}

}  // namespace macrame::agentd
