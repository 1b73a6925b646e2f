// `tenant`: what all keys of a tenant may use together, and how long what they leave is kept.

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/coordinator_change.h"
#include "cli/duration.h"
#include "cli/format/access_view.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

struct TenantOptions {
  std::string name;
  std::optional<uint32_t> requests, tokens, concurrent;
  std::string retention;
  std::string memory_only;
};

constexpr std::chrono::seconds kRetentionMin{1};

// Seconds; nothing for what is no length of time. "0" is one here.
std::optional<uint32_t> RetentionOf(const std::string& text) {
  if (text == "0") return 0;
  const auto length = ParseDuration(text, kLongDurationMax);
  if (!length.has_value() || *length < kRetentionMin) return std::nullopt;
  return static_cast<uint32_t>(std::chrono::floor<std::chrono::seconds>(*length).count());
}

CLI::Validator IsRetention() {
  return CLI::Validator(
      [](std::string& text) {
        return text == "off" || RetentionOf(text).has_value()
                   ? std::string()
                   : "'" + text +
                         "' is no length of time of 1s up to ten years; write 24h, 30d, 0 (nothing "
                         "is stored) or off (as each node's response_retention_h says)";
      },
      "TIME|0|off");
}

int Set(const Invocation& run, const v1::SetTenantRequest& request) {
  AgentClient client(run.options.agent);
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
  if (!options.requests && !options.tokens && !options.concurrent && options.retention.empty() &&
      options.memory_only.empty()) {
    return run.Fail(ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                                 "name a limit: --limit, --tokens-per-minute or --concurrent (0 "
                                 "takes one away), or --retention or --memory-only"));
  }
  v1::SetTenantRequest request;
  request.set_name(options.name);
  if (options.requests) request.set_requests_per_minute(*options.requests);
  if (options.tokens) request.set_tokens_per_minute(*options.tokens);
  if (options.concurrent) request.set_concurrent_requests(*options.concurrent);
  if (options.retention == "off") {
    request.set_clear_retention(true);
  } else if (const auto seconds = RetentionOf(options.retention)) {
    request.set_retention_s(*seconds);
  }
  if (!options.memory_only.empty()) request.set_memory_only(options.memory_only == "on");
  return Set(run, request);
}

int RunTenantClear(const Invocation& run, const std::string& name) {
  v1::SetTenantRequest request;
  request.set_name(name);
  request.set_clear(true);
  return Set(run, request);
}

int RunTenantList(const Invocation& run) {
  AgentClient client(run.options.agent);
  const auto response = client.ListTenants();
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("TenantList", *response));
    return kExitOk;
  }
  *run.environment.out << TenantsView(*response, OutputColumns(run.environment), run.style);
  return kExitOk;
}

int RunTenantErase(const Invocation& run, const std::string& name) {
  AgentClient client(run.options.agent);
  const auto response = client.EraseTenant(name);
  if (!response.ok()) return run.Fail(response.status());
  if (run.wants_table()) {
    *run.environment.out << ErasureView(*response, OutputColumns(run.environment), run.style);
  } else {
    run.PrintDocument(Document("TenantErasure", *response));
  }
  const bool all_asked =
      std::none_of(response->nodes().begin(), response->nodes().end(),
                   [](const v1::ErasedAnswers& node) { return node.has_failure(); });
  return all_asked ? kExitOk : kExitPartial;
}

void AddRetention(CLI::App* set, TenantOptions& options) {
  set->add_option("--retention", options.retention,
                  "Lifetime of stored answers; 0: store none, off: each node's setting")
      ->type_name("DURATION")
      ->check(IsRetention());
  set->add_option("--memory-only", options.memory_only,
                  "Keep the tenant's prompts out of the disk cache (default: off)")
      ->check(CLI::IsMember({"on", "off"}));
}

void AddErase(CommandTree& tree, CLI::App* tenant) {
  auto name = std::make_shared<std::string>();
  CLI::App* erase = tree.Add(
      tenant, "erase",
      "Delete a tenant's stored answers on every node now.\n"
      "Prints the number for each node. Not deleted are: prompts in the prefix cache on disk, "
      "until "
      "kv_cache_disk_hours or until space is needed, unless --memory-only was on; the memory of "
      "loaded models, until they are unloaded; and what client programs keep. Exit code 3: a node "
      "could not be asked");
  erase->add_option("tenant", *name, "Tenant, as in 'key create --tenant'")->required();
  tree.OnChosen(erase, [name](const Invocation& run) { return RunTenantErase(run, *name); });
}

}  // namespace

void AddTenant(CommandTree& tree) {
  CLI::App* tenant =
      tree.Add(tree.root, "tenant", "Set limits and retention for all keys of a tenant");
  tenant->require_subcommand(1);
  CLI::App* set = tree.Add(tenant, "set", "Set a tenant's limits and retention; other fields stay");
  auto options = std::make_shared<TenantOptions>();
  set->add_option("tenant", options->name, "Tenant, as in 'key create --tenant'")->required();
  constexpr uint32_t kMost = 1'000'000'000;
  set->add_option("--limit", options->requests, "Requests a minute at each gateway; 0: no limit")
      ->check(CLI::Range(0u, kMost));
  set->add_option("--tokens-per-minute", options->tokens,
                  "Tokens of prompts and answers a minute at each gateway; 0: no limit")
      ->check(CLI::Range(0u, kMost));
  set->add_option("--concurrent", options->concurrent,
                  "Concurrent requests at each gateway; 0: no limit")
      ->check(CLI::Range(0u, kMost));
  AddRetention(set, *options);
  tree.OnChosen(set, [options](const Invocation& run) { return RunTenantSet(run, *options); });
  CLI::App* list = tree.Add(tenant, "list", "List tenants that have limits or a retention");
  tree.OnChosen(list, RunTenantList);
  auto cleared = std::make_shared<std::string>();
  CLI::App* clear = tree.Add(tenant, "clear", "Remove all limits of a tenant; its retention stays");
  clear->add_option("tenant", *cleared, "Tenant, as in 'key create --tenant'")->required();
  tree.OnChosen(clear, [cleared](const Invocation& run) { return RunTenantClear(run, *cleared); });
  AddErase(tree, tenant);
}

}  // namespace macrame::cli
