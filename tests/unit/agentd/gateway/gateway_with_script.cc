// Serves the scripted backend until stdin ends; prints the port. For the conformance checks.
//   gateway_with_script [SCRIPT]   a file for the models "agent-…": scripted_model.h

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include <spdlog/spdlog.h>

#include "agentd/gateway/gateway.h"
#include "tests/unit/agentd/gateway/fake_backend.h"

int main(int count, char** arguments) {
  spdlog::set_level(spdlog::level::off);  // stdout is for the port
  auto backend = std::make_unique<macrame::agentd::FakeBackend>();
  if (count > 1) {
    std::ifstream file(arguments[1]);
    std::string script((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    backend = std::make_unique<macrame::agentd::FakeBackend>(std::move(script));
  }
  macrame::agentd::GatewayOptions options;
  options.port = 0;
  options.version = "test";
  auto gateway = macrame::agentd::Gateway::Start(options, backend.get());
  if (!gateway.ok()) {
    fprintf(stderr, "%s\n", std::string(gateway.status().message()).c_str());
    return 1;
  }
  printf("%d\n", (*gateway)->port());
  fflush(stdout);
  while (getchar() != EOF) {
  }
}
