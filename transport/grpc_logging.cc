#include "transport/grpc_logging.h"

#include <grpcpp/version_info.h>
#include <spdlog/spdlog.h>

// gRPC 1.65 began to log through Abseil; its own log functions did nothing from then on, and went
// with 1.67.
#define MACRAME_GRPC_LOGS_THROUGH_ABSEIL \
  (GRPC_CPP_VERSION_MAJOR > 1 || (GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR >= 65))

#if MACRAME_GRPC_LOGS_THROUGH_ABSEIL
#include <string>

#include "absl/base/log_severity.h"
#include "absl/log/globals.h"
#include "absl/log/initialize.h"
#include "absl/log/log_entry.h"
#include "absl/log/log_sink.h"
#include "absl/log/log_sink_registry.h"
#else
#include <grpc/support/log.h>
#endif

namespace macrame::transport {

#if MACRAME_GRPC_LOGS_THROUGH_ABSEIL
namespace {

// Protobuf's lines come through Abseil too.
class AbseilLines : public absl::LogSink {
 public:
  void Send(const absl::LogEntry& line) override {
    spdlog::debug("gRPC or Protobuf, {}: {}", std::string(line.source_basename()),
                  std::string(line.text_message()));
  }
};

}  // namespace

void RouteGrpcLogs() {
  static auto* const lines = new AbseilLines;  // threads of gRPC log until the process ends
  absl::AddLogSink(lines);
  absl::SetMinLogLevel(absl::LogSeverityAtLeast::kError);
  // The reason why gRPC aborts the process is on stderr as well.
  absl::SetStderrThreshold(absl::LogSeverityAtLeast::kFatal);
  // Until this call Abseil writes every line to stderr.
  absl::InitializeLog();
}
#else
void RouteGrpcLogs() {
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  gpr_set_log_function([](gpr_log_func_args* line) { spdlog::debug("gRPC: {}", line->message); });
}
#endif

}  // namespace macrame::transport
