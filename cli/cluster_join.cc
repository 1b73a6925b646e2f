#include <istream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/ascii.h"
#include "cli/command.h"
#include "cli/duration.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

constexpr std::chrono::seconds kAskAgain{1};

struct JoinOptions {
  std::string token;
  std::string wait = "10m";
};

// An argument is to be seen by every user of the machine; what is piped in is not.
std::string TokenOf(const Invocation& run, const JoinOptions& options) {
  if (options.token != "-") return options.token;
  std::string line;
  if (run.environment.in != nullptr) std::getline(*run.environment.in, line);
  return std::string(absl::StripAsciiWhitespace(line));
}

int RunClusterJoin(const Invocation& run, const JoinOptions& options) {
  AgentClient client(run.options.agent);
  v1::JoinClusterRequest request;
  request.set_token(TokenOf(run, options));
  const auto until = std::chrono::steady_clock::now() + ParseDuration(options.wait).value();
  bool is_told = false;
  auto response = client.JoinCluster(request);
  while (response.ok() && response->waits_for_approval()) {
    if (std::chrono::steady_clock::now() >= until) {
      return run.Fail(ReasonStatus(absl::StatusCode::kDeadlineExceeded, reasons::kJoinPending,
                                   "nobody approved this node within " + options.wait));
    }
    if (!is_told && !run.options.quiet) {
      *run.environment.err << "Waiting for 'clusterctl nodes approve' on the machine that made the "
                              "token ...\n"
                           << std::flush;
    }
    is_told = true;
    std::this_thread::sleep_for(kAskAgain);
    response = client.JoinCluster(request);
  }
  // Of the token's own cluster: what was asked for is so.
  const v1::Reason said = ReasonOf(response.status());
  if (absl::IsAlreadyExists(response.status()) && said.code() == reasons::kMemberAlready) {
    const std::string& member = said.message();
    if (run.wants_table()) {
      *run.environment.out << Printable(member) << ".\n";
    } else {
      Json document = Document("JoinedCluster");
      document["is_member_already"] = true;
      document["message"] = member;
      run.PrintDocument(document);
    }
    return kExitOk;
  }
  if (!response.ok()) return run.Fail(response.status());
  if (!run.wants_table()) {
    run.PrintDocument(Document("JoinedCluster", *response));
    return kExitOk;
  }
  *run.environment.out << "Joined cluster '" << Printable(response->cluster_name()) << "' ("
                       << Printable(response->cluster_id().substr(0, 8))
                       << "). This machine has a certificate of its own, which renews itself.\n"
                       << "Next: clusterctl devices list\n";
  return kExitOk;
}

}  // namespace

void AddClusterJoin(CommandTree& tree, CLI::App* cluster) {
  CLI::App* command =
      tree.Add(cluster, "join", "Join this machine to a cluster, with a token of 'cluster token'");
  auto options = std::make_shared<JoinOptions>();
  command
      ->add_option("token", options->token,
                   "Token that 'cluster token' printed; -: read it from stdin")
      ->required();
  command
      ->add_option("--wait", options->wait,
                   "Time limit for approval, if the token requires it (default: 10m)")
      ->check(IsDuration());
  tree.OnChosen(command,
                [options](const Invocation& run) { return RunClusterJoin(run, *options); });
}

}  // namespace macrame::cli
