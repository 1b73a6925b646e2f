#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/duration.h"

namespace macrame::cli {
namespace {

constexpr uint32_t kUsesMax = 64;

struct TokenOptions {
  std::string valid_for = "1h";
  uint32_t uses = 1;
  bool approve = false;
};

int RunClusterToken(const Invocation& run, const TokenOptions& options) {
  v1::CreateJoinTokenRequest request;
  const auto valid_for = ParseDuration(options.valid_for).value();
  request.set_valid_for_s(
      static_cast<uint32_t>(std::chrono::ceil<std::chrono::seconds>(valid_for).count()));
  request.set_uses(options.uses);
  request.set_approve(options.approve);
  AgentClient client(run.options.agent);
  const auto response = client.CreateJoinToken(request);
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("JoinToken", *response));
    return kExitOk;
  }
  *run.environment.out << response->token() << "\n" << std::flush;
  if (run.options.quiet) return kExitOk;
  *run.environment.err << "Valid for " << options.valid_for << ", "
                       << (response->uses() == 1 ? "one machine"
                                                 : absl::StrCat(response->uses(), " machines"))
                       << ", while this agent runs. On the other machine, where agentd runs:\n"
                       << "  clusterctl cluster join TOKEN\n";
  if (options.approve) {
    *run.environment.err << "then here, when 'clusterctl status' shows it:\n"
                         << "  clusterctl nodes approve NODE\n";
  }
  return kExitOk;
}

}  // namespace

void AddClusterToken(CommandTree& tree, CLI::App* cluster) {
  CLI::App* command =
      tree.Add(cluster, "token", "Create a token that lets a machine join (needs the secret file)");
  auto options = std::make_shared<TokenOptions>();
  command
      ->add_option("--valid-for", options->valid_for,
                   "Lifetime of the token, at most 24h (default: 1h)")
      ->check(IsDuration());
  command
      ->add_option("--uses", options->uses, "Number of machines that may join with it (default: 1)")
      ->check(CLI::Range(1u, kUsesMax));
  command->add_flag("--approve", options->approve, "Require 'nodes approve' for each machine");
  tree.OnChosen(command,
                [options](const Invocation& run) { return RunClusterToken(run, *options); });
}

}  // namespace macrame::cli
