#include "transport/grpc_logging.h"

#include <grpc/support/log.h>
#include <spdlog/spdlog.h>

namespace macrame::transport {

void RouteGrpcLogs() {
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  gpr_set_log_function([](gpr_log_func_args* line) { spdlog::debug("gRPC: {}", line->message); });
}

}  // namespace macrame::transport
