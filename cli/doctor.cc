#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/format/doctor_view.h"
#include "proto/reasons.h"
#include "transport/links/diagnosis.h"

namespace macrame::cli {
namespace {

struct DoctorOptions {
  std::vector<std::string> nodes;
  std::string explain;
  std::string report;
};

int ExitOf(v1::Severity severity) {
  switch (severity) {
    case v1::SEVERITY_ERROR:
      return kExitFindingError;
    case v1::SEVERITY_DEGRADED:
      return kExitFindingDegraded;
    case v1::SEVERITY_WARNING:
      return kExitFindingWarning;
    default:
      return kExitOk;
  }
}

int Explain(const Invocation& run, const std::string& code) {
  const std::string text = ExplainText(code, run.style);
  if (!text.empty()) {
    *run.environment.out << text;
    return kExitOk;
  }
  v1::Reason reason = MakeReason(reasons::kInternal, absl::StrCat("no reason code '", code, "'"));
  reason.set_remedy("cli/LINKS.md of the sources lists them all");
  return run.Fail(ReasonStatus(absl::StatusCode::kNotFound, reason));
}

// Both or none: what can't be written is said.
bool Write(const Invocation& run, const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return true;
  v1::Reason reason = MakeReason(reasons::kInternal, absl::StrCat("can't write ", path));
  reason.set_remedy("name a file in a folder that you may write to");
  run.Fail(ReasonStatus(absl::StatusCode::kUnknown, reason));
  return false;
}

int RunDoctor(const Invocation& run, const DoctorOptions& options) {
  if (!options.explain.empty()) return Explain(run, options.explain);
  AgentClient client(run.options.agent);
  const auto ids = ResolveNodes(client, options.nodes);
  if (!ids.ok()) return run.Fail(ids.status());
  v1::DiagnoseRequest request;
  for (const std::string& id : *ids) request.add_node_ids(id);
  const auto diagnosis = client.Diagnose(request);
  if (!diagnosis.ok()) return run.Fail(diagnosis.status());
  if (!options.report.empty()) {
    v1::Diagnosis told = *diagnosis;
    for (v1::LinkFacts& facts : *told.mutable_facts()) facts.clear_outputs();
    if (!Write(run, options.report, transport::DiagnosisMarkdown(told)) ||
        !Write(run, absl::StrCat(options.report, ".json"),
               transport::CutSecrets(ToJsonText(Document("Diagnosis", told))))) {
      return kExitFailure;
    }
    if (!run.options.quiet) {
      *run.environment.err << "written: " << Printable(options.report) << " and "
                           << Printable(options.report) << ".json\n";
    }
  }
  if (run.wants_table()) {
    *run.environment.out << DoctorText(*diagnosis, run.style);
  } else {
    run.PrintDocument(Document("Diagnosis", *diagnosis));
  }
  return ExitOf(WorstOf(*diagnosis));
}

}  // namespace

void AddDoctor(CommandTree& tree) {
  CLI::App* command =
      tree.Add(tree.root, "doctor", "Find problems of links and nodes, their causes and remedies");
  auto options = std::make_shared<DoctorOptions>();
  command->add_option("nodes", options->nodes, "Check only these nodes and the links between them");
  command->add_option("--explain", options->explain, "Explain a reason code or an error message")
      ->type_name("REASON");
  command
      ->add_option("--report", options->report,
                   "Write a full report to this file, as Markdown, with JSON next to it")
      ->type_name("FILE");
  tree.OnChosen(command, [options](const Invocation& run) { return RunDoctor(run, *options); });
}

}  // namespace macrame::cli
