#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/format/links_view.h"
#include "cli/format/reason_text.h"
#include "cli/interrupt.h"

namespace macrame::cli {
namespace {

struct LinksOptions {
  std::vector<std::string> nodes;
  bool detail = false;
};

int RunLinks(const Invocation& run, const LinksOptions& options) {
  AgentClient client(run.options.agent);
  const auto ids = ResolveNodes(client, options.nodes);
  if (!ids.ok()) return run.Fail(ids.status());
  const auto view = client.GetLinks();
  if (!view.ok()) return run.Fail(view.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("Links", *view));
    return kExitOk;
  }
  *run.environment.out << LinksText(*view, ids->empty() ? "" : ids->front(), options.detail,
                                    OutputColumns(run.environment), run.style);
  return kExitOk;
}

int RunRecheck(const Invocation& run, const LinksOptions& options) {
  AgentClient client(run.options.agent);
  const auto ids = ResolveNodes(client, options.nodes);
  if (!ids.ok()) return run.Fail(ids.status());
  InterruptWatch interrupt([&client] { client.Cancel(); });
  v1::RecheckLinksRequest request;
  for (const std::string& id : *ids) request.add_node_ids(id);
  if (!run.options.quiet && run.wants_table()) {
    *run.environment.err << "every node probes its ports and measures its links again\n";
  }
  const auto response = client.RecheckLinks(request);
  if (interrupt.interrupted()) return interrupt.exit_code();
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("RecheckedLinks", *response));
    return kExitOk;
  }
  for (const v1::TransportRefusal& refusal : response->forgotten()) {
    *run.environment.out << Printable(refusal.backend()) << " may be tried again (was refused: "
                         << Printable(refusal.reason().code()) << ")\n";
  }
  *run.environment.out << "all live nodes together: "
                       << Printable(response->links().group().verdict()) << "\n";
  return kExitOk;
}

int RunBench(const Invocation& run, const LinksOptions& options) {
  AgentClient client(run.options.agent);
  const auto ids = ResolveNodes(client, options.nodes);
  if (!ids.ok()) return run.Fail(ids.status());
  const auto view = client.GetLinks();
  if (!view.ok()) return run.Fail(view.status());
  InterruptWatch interrupt([&client] { client.Cancel(); });
  v1::BenchLinksRequest request;
  for (const std::string& id : *ids) request.add_node_ids(id);
  Json document = Document("LinkMeasurements");
  document["items"] = Json::array();
  const absl::Status ended = client.BenchLinks(request, [&](const v1::LinkMeasurement& measured) {
    if (run.wants_table()) {
      *run.environment.out << MeasurementLine(measured, *view) << std::flush;
    } else {
      document["items"].push_back(MessageToJson(measured));
    }
  });
  if (interrupt.interrupted()) return interrupt.exit_code();
  if (!ended.ok()) return run.Fail(ended);
  if (!run.wants_table()) {
    run.PrintDocument(document);
  } else if (!run.options.quiet) {
    *run.environment.err
        << "round trip of 64 bytes over TCP, there and back; below 10 us is good RDMA, above 50 us "
           "suspicious for RDMA, above 300 us for TCP\n";
  }
  return kExitOk;
}

int RunStats(const Invocation& run, bool network) {
  AgentClient client(run.options.agent);
  const auto view = client.GetLinks();
  if (!view.ok()) return run.Fail(view.status());
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  if (!run.wants_table()) {
    Json document = Document("Stats");
    document["load"] = MessageToJson(status->aggregate_load());
    document["nodes"] = MessageToJson(*view)["nodes"];
    document["deployments"] = MessageToJson(*status)["deployments"];
    run.PrintDocument(document);
    return kExitOk;
  }
  const v1::AggregateLoad& load = status->aggregate_load();
  *run.environment.out << Plural(load.nodes_alive(), "node") << " alive, "
                       << Rate(load.tokens_per_second()) << " tokens/s, " << load.requests_running()
                       << " running, " << load.requests_queued() << " waiting\n";
  for (const v1::DeploymentStatus& deployment : status->deployments()) {
    for (const v1::RankStatus& rank : deployment.ranks()) {
      if (rank.rank() != 0 || rank.group_size() < 2) continue;
      *run.environment.out << Printable(deployment.deployment().name()) << ": " << rank.group_size()
                           << " ranks over " << Printable(rank.backend())
                           << absl::StrFormat(", small collectives p50 %.0f us, p99 %.0f us, ",
                                              rank.collective_us_p50(), rank.collective_us_p99())
                           << GiB(rank.collective_bytes()) << " sent by rank 0\n";
    }
  }
  if (network) {
    *run.environment.out << "\n"
                         << NetworkStatsText(*view, OutputColumns(run.environment), run.style);
    return kExitOk;
  }
  for (const v1::NodePath& path : view->links().paths()) {
    if (path.to_node_id() < path.from_node_id()) continue;
    *run.environment.out << Printable(NameIn(*view, path.from_node_id())) << " - "
                         << Printable(NameIn(*view, path.to_node_id())) << ": round trip "
                         << (path.round_trip_us() > 0
                                 ? absl::StrFormat("%.0f us", path.round_trip_us())
                                 : std::string("not measured yet"))
                         << "\n";
  }
  return kExitOk;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ResolveNodes(AgentClient& client,
                                                      const std::vector<std::string>& names) {
  std::vector<std::string> ids;
  if (names.empty()) return ids;
  const auto status = client.GetStatus();
  if (!status.ok()) return status.status();
  for (const std::string& name : names) {
    const auto found = ResolveEach(*status, name);
    if (!found.ok()) return found.status();
    ids.insert(ids.end(), found->begin(), found->end());
  }
  return ids;
}

void AddLinks(CommandTree& tree) {
  CLI::App* links =
      tree.Add(tree.root, "links", "Show each link's speed, its verdict and the reason");
  auto options = std::make_shared<LinksOptions>();
  links->add_option("node", options->nodes, "Show only this node's links")->expected(0, 1);
  links->add_flag("--detail", options->detail, "Show each node's ports and devices too");
  tree.OnChosen(links, [options](const Invocation& run) { return RunLinks(run, *options); });
  CLI::App* recheck =
      tree.Add(links, "recheck", "Forget refused links, then probe and measure again");
  auto asked = std::make_shared<LinksOptions>();
  recheck->add_option("nodes", asked->nodes, "Nodes to include (default: all)");
  tree.OnChosen(recheck, [asked](const Invocation& run) { return RunRecheck(run, *asked); });
  CLI::App* bench = tree.Add(links, "bench", "Measure every pair of addresses now");
  auto benched = std::make_shared<LinksOptions>();
  bench->add_option("nodes", benched->nodes, "Nodes to include (default: all)");
  tree.OnChosen(bench, [benched](const Invocation& run) { return RunBench(run, *benched); });
}

void AddStats(CommandTree& tree) {
  CLI::App* stats = tree.Add(tree.root, "stats", "Show current speed and latency");
  auto network = std::make_shared<bool>(false);
  stats->add_flag("--network", *network, "Show each measured link: p50, p99, bytes, failures");
  tree.OnChosen(stats, [network](const Invocation& run) { return RunStats(run, *network); });
}

}  // namespace macrame::cli
