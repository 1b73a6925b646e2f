#include "cli/command.h"

namespace macrame::cli {
namespace {

int RunClusterAuthority(const Invocation& run) {
  AgentClient client(run.options.agent);
  const auto response = client.GetAuthority();
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("Authority", *response));
    return kExitOk;
  }
  *run.environment.out << response->certificate() << std::flush;
  if (run.options.quiet) return kExitOk;
  *run.environment.err << "The authority of cluster " << Printable(response->cluster_name())
                       << ", SHA-256 " << response->fingerprint() << ".\n"
                       << "Programs that use its gateways by https are told to trust it:\n"
                       << "  curl --cacert FILE, SSL_CERT_FILE=FILE (Python's openai, httpx), "
                          "NODE_EXTRA_CA_CERTS=FILE (Node)\n";
  return kExitOk;
}

}  // namespace

void AddClusterAuthority(CommandTree& tree, CLI::App* cluster) {
  CLI::App* command = tree.Add(cluster, "authority",
                               "Print the authority's certificate, for programs that use https");
  tree.OnChosen(command, RunClusterAuthority);
}

}  // namespace macrame::cli
