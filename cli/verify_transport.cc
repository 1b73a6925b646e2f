#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/format/text.h"
#include "cli/model_name.h"

namespace macrame::cli {
namespace {

constexpr uint32_t kRounds = 50;

// Agents of earlier versions tell none.
std::string RoundsOf(const v1::CollectiveTiming& timing) {
  return timing.rounds() == 0 ? "" : absl::StrCat(", ", Plural(timing.rounds(), "round"));
}

int RunVerify(const Invocation& run, const std::string& deployment) {
  AgentClient client(run.options.agent);
  v1::VerifyTransportRequest request;
  request.set_deployment(ModelMeantBy(client, deployment));
  request.mutable_group()->set_rounds(kRounds);
  for (const uint64_t size : {1 << 10, 8 << 10, 64 << 10, 1 << 20}) {
    request.mutable_group()->add_sizes_bytes(size);
  }
  const auto response = client.VerifyTransport(request);
  if (!response.ok()) return run.Fail(response.status());
  const v1::VerifyGroupResponse& group = response->group();
  const bool as_planned = group.backend() == response->expected_backend() &&
                          group.group_size() == response->expected_size();
  const bool good = as_planned && group.sum_correct();
  if (!run.wants_table()) {
    run.PrintDocument(Document("VerifiedTransport", *response));
    return good ? kExitOk : kExitFailure;
  }
  *run.environment.out << Printable(response->deployment()) << ": " << group.group_size() << " rank"
                       << (group.group_size() == 1 ? "" : "s") << " over "
                       << Printable(group.backend()) << "; planned: " << response->expected_size()
                       << " over " << Printable(response->expected_backend()) << "\n";
  for (const v1::CollectiveTiming& timing : group.timings()) {
    *run.environment.out << absl::StrFormat(
        "  all-reduce of %7d bytes: p50 %8.0f us, p99 %8.0f us, %6.2f GB/s%s\n",
        timing.size_bytes(), timing.us_p50(), timing.us_p99(),
        timing.bandwidth_bytes_per_second() / 1e9, RoundsOf(timing));
  }
  const int untimed = request.group().sizes_bytes_size() - group.timings_size();
  if (group.group_size() > 1 && untimed > 0) {
    *run.environment.out << "  not summed: " << Plural(untimed, "larger size")
                         << "; the smaller ones took all the time there is for this\n";
  }
  *run.environment.out << (good ? run.style.Good("verified")
                                : run.style.Bad(group.sum_correct() ? "not as planned"
                                                                    : "sums are wrong"))
                       << ": each rank's share was " << (group.sum_correct() ? "" : "not ")
                       << "in every sum (over the live group, within MLX's graph)\n";
  return good ? kExitOk : kExitFailure;
}

}  // namespace

void AddVerify(CommandTree& tree) {
  CLI::App* group = tree.Add(tree.root, "verify", "Run checks against a loaded model");
  group->require_subcommand(1);
  CLI::App* command = tree.Add(group, "transport",
                               "Time collectives of a loaded model (exit code 1: not as planned)");
  auto deployment = std::make_shared<std::string>();
  command->add_option("model", *deployment, "Loaded model (default: the first)");
  tree.OnChosen(command,
                [deployment](const Invocation& run) { return RunVerify(run, *deployment); });
}

}  // namespace macrame::cli
