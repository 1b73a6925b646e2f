#include "cli/command.h"

namespace macrame::cli {
namespace {

// Also without an agent: what is asked first when something doesn't work.
int RunVersion(const Invocation& run) {
  AgentClient client(run.options.agent);
  const auto agent = client.Version();
  if (!run.wants_table()) {
    Json document = Document("Version");
    document["client"] = ClientVersion();
    document["agent"] = agent.ok() ? MessageToJson(*agent) : Json(nullptr);
    run.PrintDocument(document);
    return kExitOk;
  }
  std::ostream& out = *run.environment.out;
  out << "clusterctl " << ClientVersion() << "\n";
  if (agent.ok()) {
    out << "agentd     " << Printable(agent->version()) << " on " << Printable(agent->hostname())
        << " (MLX " << Printable(agent->mlx_version()) << ")\n";
  } else {
    out << "agentd     does not answer at " << Printable(run.options.agent.Text()) << "\n";
  }
  return kExitOk;
}

}  // namespace

void AddVersion(CommandTree& tree) {
  tree.OnChosen(tree.Add(tree.root, "version", "Show the versions of this tool and of the agent"),
                RunVersion);
}

}  // namespace macrame::cli
