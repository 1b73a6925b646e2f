#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/duration.h"
#include "cli/format/access_view.h"

namespace macrame::cli {
namespace {

constexpr uint32_t kPageLines = 2000;

struct AuditShowOptions {
  std::string since;
  uint32_t limit = 100;
};

int RunAuditShow(const Invocation& run, const AuditShowOptions& options) {
  v1::ReadAuditRequest request;
  request.set_limit(options.limit);
  if (!options.since.empty()) {
    request.set_since_unix_ms(UnixMsBefore(options.since, kLongDurationMax));
  }
  AgentClient client(run.options.agent);
  const auto response = client.ReadAudit(request);
  if (!response.ok()) return run.Fail(response.status());
  std::vector<Json> entries;
  for (const std::string& line : response->lines()) {
    entries.push_back(Json::parse(line, nullptr, /*allow_exceptions=*/false));
  }
  if (run.wants_table()) {
    *run.environment.out << AuditView(entries, OutputColumns(run.environment), run.style);
    return kExitOk;
  }
  Json document = Document("AuditLog");
  document["items"] = Json::array();
  for (Json& entry : entries) {
    if (entry.is_object()) document["items"].push_back(std::move(entry));
  }
  run.PrintDocument(document);
  return kExitOk;
}

int RunAuditVerify(const Invocation& run) {
  AgentClient client(run.options.agent);
  const auto response = client.VerifyAudit();
  if (!response.ok()) return run.Fail(response.status());
  const bool holds = response->broken_at().empty();
  if (!run.wants_table()) {
    run.PrintDocument(Document("AuditCheck", *response));
  } else if (holds) {
    *run.environment.out << "The chain holds: " << absl::StrCat(response->entries(), " entries")
                         << " from number " << response->first_sequence() << ".\nLast hash: "
                         << (response->last_hash().empty() ? "none"
                                                           : Printable(response->last_hash()))
                         << "\n";
  } else {
    *run.environment.out << "The chain is broken at " << Printable(response->broken_at()) << ": "
                         << Printable(response->broken_why()) << ".\n"
                         << "The lines before it hold: " << response->entries() << ".\n";
  }
  return holds ? kExitOk : kExitFailure;
}

int RunAuditExport(const Invocation& run) {
  AgentClient client(run.options.agent);
  v1::ReadAuditRequest request;
  request.set_from_sequence(1);
  request.set_limit(kPageLines);
  for (;;) {
    const auto response = client.ReadAudit(request);
    if (!response.ok()) return run.Fail(response.status());
    for (const std::string& line : response->lines()) *run.environment.out << line << "\n";
    if (response->next_sequence() <= request.from_sequence()) break;
    request.set_from_sequence(response->next_sequence());
  }
  *run.environment.out << std::flush;
  return kExitOk;
}

}  // namespace

void AddAudit(CommandTree& tree) {
  CLI::App* audit =
      tree.Add(tree.root, "audit", "Show and check the log of who did what on this agent");
  audit->require_subcommand(1);
  CLI::App* show = tree.Add(audit, "show", "Show the last entries");
  auto options = std::make_shared<AuditShowOptions>();
  show->add_option("--since", options->since, "Show only the last 2h or 30d (default: all)")
      ->check(IsLongDuration());
  show->add_option("--limit", options->limit,
                   "Maximum number of entries, newest first (default: 100)")
      ->check(CLI::Range(1u, 4000u));
  tree.OnChosen(show, [options](const Invocation& run) { return RunAuditShow(run, *options); });
  CLI::App* verify =
      tree.Add(audit, "verify", "Check for changed or missing lines (exit code 1: found)");
  tree.OnChosen(verify, RunAuditVerify);
  CLI::App* all = tree.Add(audit, "export", "Print all entries, one JSON object a line");
  tree.OnChosen(all, RunAuditExport);
}

}  // namespace macrame::cli
