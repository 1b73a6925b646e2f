// `debug bundle`: all that one asks for when something is wrong, in one file, without secrets and
// prompts.

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/command.h"
#include "cli/format/cluster_view.h"
#include "cli/format/reason_text.h"
#include "cli/format/redaction.h"
#include "cli/sibling_program.h"
#include "proto/reasons.h"
#include "transport/log_tail.h"
#include "transport/program_path.h"

namespace macrame::cli {
namespace {

constexpr uint32_t kLogLines = 2000;

struct BundleOptions {
  std::string out;
};

// Files in a folder of their own, which goes with this object.
class Bundle {
 public:
  Bundle() {
    std::string pattern = (std::filesystem::temp_directory_path() / "clusterctl-").string();
    pattern.append(6, 'X');  // what mkdtemp replaces
    if (::mkdtemp(pattern.data()) == nullptr) return;
    above_ = pattern;
    name_ = absl::StrCat("macrame-debug-",
                         absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone()));
    std::error_code error;
    std::filesystem::create_directory(above_ / name_, error);
  }
  ~Bundle() {
    std::error_code error;
    if (!above_.empty()) std::filesystem::remove_all(above_, error);
  }
  Bundle(const Bundle&) = delete;
  Bundle& operator=(const Bundle&) = delete;

  bool is_open() const { return !above_.empty(); }
  const std::string& name() const { return name_; }

  void Write(const std::string& file, const std::string& text) {
    std::ofstream to(above_ / name_ / file, std::ios::binary);
    to << Redacted(text);
    to.close();
    if (to) ++files_;
  }
  template <typename Message>
  void WriteAnswer(const std::string& file, const char* kind,
                   const absl::StatusOr<Message>& answer) {
    if (!answer.ok()) return Miss(file, answer.status());
    Write(absl::StrCat(file, ".json"), ToJsonText(Document(kind, *answer)));
  }
  void Miss(const std::string& what, const absl::Status& why) {
    absl::StrAppend(&missing_, what, ": ", ReasonSentence(ReasonOf(why)), "\n");
  }
  // What could not be had, as lines.
  const std::string& missing() const { return missing_; }
  int files() const { return files_; }

  absl::Status Pack(const std::string& path) {
    if (!missing_.empty()) Write("missing.txt", missing_);
    // tar takes what stands before a colon for a machine, unless there is a slash before it.
    const std::string whole = std::filesystem::absolute(path).string();
    return OutputOf("tar", {"-czf", whole, "-C", above_.string(), name_}, "").status();
  }

 private:
  std::filesystem::path above_;
  std::string name_;
  std::string missing_;
  int files_ = 0;
};

void AddLogTails(AgentClient& client, const v1::ClusterStatus& status, Bundle& bundle) {
  for (const v1::NodeStatus& node : status.nodes()) {
    v1::LogsRequest request;
    request.set_node_id(node.identity().node_id());
    request.set_lines(kLogLines);
    std::string text;
    const absl::Status done =
        client.Logs(request, [&](const v1::LogsChunk& chunk) { text += chunk.text(); });
    const std::string& id = node.identity().node_id();
    const std::string file = absl::StrCat("log-", id.substr(0, 8));
    if (!done.ok()) bundle.Miss(absl::StrCat("the log of ", NodeName(status, id)), done);
    if (!text.empty()) bundle.Write(absl::StrCat(file, ".txt"), text);
  }
}

// No agent answers: what the one of this machine wrote last is wanted most then.
void AddOwnLog(Bundle& bundle) {
  const std::string path = transport::DefaultLogFile(transport::DefaultStateFolder());
  const auto last = transport::LogTail(path).Last(kLogLines);
  if (!last.ok()) return bundle.Miss(absl::StrCat("this machine's log, ", path), last.status());
  bundle.Write("log-here.txt", *last);
}

// Found out before anything is collected.
absl::Status CheckCanWrite(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  if (!is_folder && ::access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  v1::Reason reason = MakeReason(reasons::kBadRequest,
                                 absl::StrCat("the bundle can't be written to ", path, ": ",
                                              is_folder ? "it is a folder" : std::strerror(errno)));
  reason.set_remedy("name a file in a folder that this user may write to, with --out");
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

// This machine's settings, as an agent that is started here would take them.
void AddSettings(Bundle& bundle) {
  const auto settings = OutputOf(transport::ProgramBesideThis("agentd"), {"--print-config"}, "");
  if (!settings.ok()) return bundle.Miss("settings", settings.status());
  bundle.Write("settings.yaml", *settings);
}

int RunBundle(const Invocation& run, const BundleOptions& options) {
  Bundle bundle;
  if (!bundle.is_open()) {
    return run.Fail(absl::PermissionDeniedError("no temporary folder can be made"));
  }
  const std::string path =
      options.out.empty() ? absl::StrCat(bundle.name(), ".tar.gz") : options.out;
  if (const absl::Status may = CheckCanWrite(path); !may.ok()) return run.Fail(may);
  AgentClient client(run.options.agent);
  const auto status = client.GetStatus();
  if (ReasonOf(status.status()).code() == reasons::kAgentUnreachable) {
    // One line for all that it would have told.
    bundle.Miss("status, models, links, findings and events", status.status());
    AddOwnLog(bundle);
  } else {
    bundle.WriteAnswer("status", "ClusterStatus", status);
    bundle.WriteAnswer("version", "Version", client.Version());
    bundle.WriteAnswer("models", "ModelList", client.ListModels());
    bundle.WriteAnswer("links", "Links", client.GetLinks());
    bundle.WriteAnswer("doctor", "Diagnosis", client.Diagnose({}));
    bundle.WriteAnswer("events", "EventList", client.ListEvents({}));
  }
  if (status.ok()) AddLogTails(client, *status, bundle);
  AddSettings(bundle);
  if (const absl::Status packed = bundle.Pack(path); !packed.ok()) return run.Fail(packed);
  if (!run.wants_table()) {
    Json document = Document("DebugBundle");
    document["file"] = path;
    document["files"] = bundle.files();
    run.PrintDocument(document);
  } else {
    *run.environment.out << Plural(static_cast<uint64_t>(bundle.files()), "file") << " in "
                         << Printable(path) << "; no secrets and no prompts are in it, names and "
                         << "addresses of machines are\n";
  }
  if (bundle.missing().empty()) return kExitOk;
  *run.environment.err << run.err_style.Warn("missing") << ":\n"
                       << Printable(bundle.missing(), true);
  return kExitPartial;
}

}  // namespace

void AddDebug(CommandTree& tree) {
  CLI::App* debug = tree.Add(tree.root, "debug", "Collect files for a bug report");
  debug->require_subcommand(1);
  CLI::App* bundle = tree.Add(
      debug, "bundle", "Write status, links, findings, events, logs and settings to a .tar.gz");
  auto options = std::make_shared<BundleOptions>();
  bundle->add_option("--out", options->out, "File to write (default: macrame-debug-TIME.tar.gz)")
      ->type_name("FILE");
  tree.OnChosen(bundle, [options](const Invocation& run) { return RunBundle(run, *options); });
}

}  // namespace macrame::cli
