#include "cli/app.h"
#include "transport/grpc_logging.h"

int main(int argc, char** argv) {
  macrame::transport::RouteGrpcLogs();
  return macrame::cli::RunClusterctl({argv + 1, argv + argc}, macrame::cli::ProcessEnvironment());
}
