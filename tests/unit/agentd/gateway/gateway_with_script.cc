// Serves the scripted backend until stdin ends; prints the port. For the conformance checks.

#include <cstdio>

#include <spdlog/spdlog.h>

#include "agentd/gateway/gateway.h"
#include "tests/unit/agentd/gateway/fake_backend.h"

int main() {
  spdlog::set_level(spdlog::level::off);  // stdout is for the port
  macrame::agentd::FakeBackend backend;
  macrame::agentd::GatewayOptions options;
  options.port = 0;
  options.version = "test";
  auto gateway = macrame::agentd::Gateway::Start(options, &backend);
  if (!gateway.ok()) {
    fprintf(stderr, "%s\n", std::string(gateway.status().message()).c_str());
    return 1;
  }
  printf("%d\n", (*gateway)->port());
  fflush(stdout);
  while (getchar() != EOF) {
  }
}
