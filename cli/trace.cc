// clusterctl trace: what every rank of a model does for some seconds, for Perfetto.

#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/format/chrome_trace.h"
#include "cli/format/cluster_view.h"
#include "cli/format/reason_text.h"
#include "cli/interrupt.h"
#include "cli/model_name.h"

namespace macrame::cli {
namespace {

constexpr double kSecondsMax = 60;

struct TraceOptions {
  std::string model, out;
  double seconds = 5;
};

int RunTrace(const Invocation& run, const TraceOptions& options) {
  AgentClient client(run.options.agent);
  v1::TraceRankRequest request;
  request.set_deployment(ModelMeantBy(client, options.model));
  request.set_duration_ms(static_cast<uint32_t>(options.seconds * 1000));
  InterruptWatch interrupt([&] { client.Cancel(); });
  const v1::ClusterStatus status = client.GetStatus().value_or(v1::ClusterStatus());
  const auto trace = client.TraceModel(request);
  if (interrupt.interrupted()) return interrupt.exit_code();
  if (!trace.ok()) return run.Fail(trace.status());
  const std::string text =
      ToJsonText(ChromeTrace(*trace, [&](const std::string& id) { return NodeName(status, id); }),
                 /*compact=*/true);
  if (options.out == "-") {
    *run.environment.out << text;
  } else {
    std::ofstream file(options.out, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file) {
      return run.Fail(
          absl::PermissionDeniedError(absl::StrCat("the trace can't be written to ", options.out)));
    }
  }
  int spans = 0;
  for (const v1::RankTrace& rank : trace->ranks()) spans += rank.spans_size();
  if (options.out != "-" && !run.wants_table()) {
    Json document = Document("TraceFile");
    document["file"] = options.out;
    document["spans"] = spans;
    document["ranks"] = trace->ranks_size();
    run.PrintDocument(document);
  } else if (options.out != "-" && !run.options.quiet) {
    *run.environment.out << Plural(static_cast<uint64_t>(spans), "span") << " of "
                         << Plural(static_cast<uint64_t>(trace->ranks_size()), "rank") << " in "
                         << options.out
                         << "; open it with https://ui.perfetto.dev or chrome://tracing\n";
  }
  for (const v1::Reason& missing : trace->missing()) {
    *run.environment.err << run.err_style.Warn("missing") << ": "
                         << Printable(NodeName(status, missing.node_id())) << ": "
                         << Printable(missing.message()) << "\n";
  }
  if (trace->ranks().empty()) return kExitFailure;
  return trace->missing().empty() ? kExitOk : kExitPartial;
}

}  // namespace

void AddTrace(CommandTree& tree) {
  CLI::App* command =
      tree.Add(tree.root, "trace", "Record all ranks of a model for Perfetto or chrome://tracing");
  auto options = std::make_shared<TraceOptions>();
  command->add_option("model", options->model, "Name of a loaded model")->required();
  command->add_option("--seconds", options->seconds, "Length of the recording in seconds")
      ->check(CLI::Range(0.01, kSecondsMax));
  command
      ->add_option("--out", options->out, "File to write; '-': stdout (default: MODEL.trace.json)")
      ->type_name("FILE");
  tree.OnChosen(command, [options](const Invocation& run) {
    TraceOptions chosen = *options;
    if (chosen.out.empty()) {
      std::string name = chosen.model;
      for (char& c : name) {
        if (c == '/') c = '-';
      }
      chosen.out = absl::StrCat(name, ".trace.json");
    }
    return RunTrace(run, chosen);
  });
}

}  // namespace macrame::cli
