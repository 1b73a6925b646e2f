// `tenant`: what all keys of a tenant may use together.

#include <memory>
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/coordinator_change.h"
#include "cli/format/access_view.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

struct TenantOptions {
  std::string name;
  std::optional<uint32_t> requests, tokens, concurrent;
};

int Set(const Invocation& run, const v1::SetTenantRequest& request) {
  AgentClient client(run.options.socket_path);
  const auto response = GiveOrder([&] { return client.SetTenant(request); });
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("TenantLimits", *response));
    return kExitOk;
  }
  *run.environment.out << "tenant " << Printable(request.name())
                       << (response->changed() ? ": " : " already: ")
                       << LimitsText(response->tenant()) << "\n";
  return kExitOk;
}

int RunTenantSet(const Invocation& run, const TenantOptions& options) {
  if (!options.requests && !options.tokens && !options.concurrent) {
    return run.Fail(ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                                 "name a limit: --limit, --tokens-per-minute or --concurrent; 0 "
                                 "takes one away"));
  }
  v1::SetTenantRequest request;
  request.set_name(options.name);
  if (options.requests) request.set_requests_per_minute(*options.requests);
  if (options.tokens) request.set_tokens_per_minute(*options.tokens);
  if (options.concurrent) request.set_concurrent_requests(*options.concurrent);
  return Set(run, request);
}

int RunTenantClear(const Invocation& run, const std::string& name) {
  v1::SetTenantRequest request;
  request.set_name(name);
  request.set_clear(true);
  return Set(run, request);
}

int RunTenantList(const Invocation& run) {
  AgentClient client(run.options.socket_path);
  const auto response = client.ListTenants();
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("TenantList", *response));
    return kExitOk;
  }
  *run.environment.out << TenantsView(*response, OutputColumns(run.environment), run.style);
  return kExitOk;
}

}  // namespace

void AddTenant(CommandTree& tree) {
  CLI::App* tenant =
      tree.Add(tree.root, "tenant", "What all keys of a tenant may use of the HTTP API together");
  tenant->require_subcommand(1);
  CLI::App* set = tree.Add(tenant, "set", "Set limits of a tenant; those not named stay");
  auto options = std::make_shared<TenantOptions>();
  set->add_option("tenant", options->name, "As in 'key create --tenant'")->required();
  constexpr uint32_t kMost = 1'000'000'000;
  set->add_option("--limit", options->requests, "Requests a minute at each gateway; 0: no limit")
      ->check(CLI::Range(0u, kMost));
  set->add_option("--tokens-per-minute", options->tokens,
                  "Tokens of prompts and answers a minute at each gateway; 0: no limit")
      ->check(CLI::Range(0u, kMost));
  set->add_option("--concurrent", options->concurrent,
                  "Requests under way at once at each gateway; 0: no limit")
      ->check(CLI::Range(0u, kMost));
  tree.OnChosen(set, [options](const Invocation& run) { return RunTenantSet(run, *options); });
  CLI::App* list = tree.Add(tenant, "list", "Tenants that have limits");
  tree.OnChosen(list, RunTenantList);
  auto cleared = std::make_shared<std::string>();
  CLI::App* clear = tree.Add(tenant, "clear", "Take all limits of a tenant away");
  clear->add_option("tenant", *cleared, "As in 'key create --tenant'")->required();
  tree.OnChosen(clear, [cleared](const Invocation& run) { return RunTenantClear(run, *cleared); });
}

}  // namespace macrame::cli
