#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/command.h"
#include "cli/format/reason_text.h"
#include "proto/reasons.h"
#include "transport/log_tail.h"
#include "transport/regular_file.h"

extern char** environ;

namespace macrame::cli {
namespace {

// The one program that a plan's commands call; nothing else is ever run as root.
constexpr char kProgram[] = "networksetup";
constexpr size_t kJournalBytesMax = size_t{64} << 20;
constexpr const char* kFolders[] = {"/usr/sbin", "/usr/bin", "/sbin", "/bin"};

struct NetOptions {
  std::string block;
  std::string journal;
  bool yes = false;
};

// Words with "double quotes" around those that hold blanks, as plans write them: within these, a
// backslash stands before what a shell would take for its own.
std::vector<std::string> Words(const std::string& command) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false, any = false, escaped = false;
  for (const char c : command) {
    if (escaped) {
      word.push_back(c);
      escaped = false;
    } else if (c == '\\' && quoted) {
      escaped = true;
    } else if (c == '"') {
      quoted = !quoted;
      any = true;
    } else if (c == ' ' && !quoted) {
      if (any) words.push_back(word);
      word.clear();
      any = false;
    } else {
      word.push_back(c);
      any = true;
    }
  }
  if (any) words.push_back(word);
  return words;
}

std::string FindProgram(const Environment& environment) {
  const std::string folder = environment.variable("MACRAME_COMMANDS_FOLDER");
  if (!folder.empty()) return absl::StrCat(folder, "/", kProgram);
  for (const char* candidate : kFolders) {
    const std::string path = absl::StrCat(candidate, "/", kProgram);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

// Without a shell; its exit code, -1 when it could not be run.
int RunProgram(const Environment& environment, const std::string& command) {
  std::vector<std::string> words = Words(command);
  const std::string path = FindProgram(environment);
  if (words.empty() || words[0] != kProgram || path.empty()) return -1;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  if (posix_spawn(&pid, path.c_str(), nullptr, nullptr, arguments.data(), environ) != 0) return -1;
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

// What was done here, one undoing command a line, in the order of doing.
std::string JournalPath(const NetOptions& options) {
  return options.journal.empty() ? absl::StrCat(transport::DefaultStateFolder(), "/net-journal")
                                 : options.journal;
}

std::vector<std::string> ReadJournal(const std::string& path) {
  std::istringstream file(transport::ReadRegularFile(path, kJournalBytesMax).value_or(""));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

// On disk before anything else is done; false when it can't be.
bool WriteJournal(const std::string& path, const std::vector<std::string>& lines) {
  std::error_code error;
  if (lines.empty()) return std::filesystem::remove(path, error) || !error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const std::string fresh = path + ".new";
  std::ofstream file(fresh, std::ios::trunc);
  for (const std::string& line : lines) file << line << "\n";
  file.close();
  if (!file) return false;
  std::filesystem::rename(fresh, path, error);
  return !error;
}

std::string OwnId(AgentClient& client) {
  const auto status = client.GetStatus();
  return status.ok() ? status->answered_by() : "";
}

void PrintPlan(const Invocation& run, const v1::NetPlan& plan, const v1::ClusterStatus& status) {
  for (const v1::Reason& warning : plan.warnings()) {
    *run.environment.out << run.style.Warn("mind first: ") << ReasonSentence(warning) << "\n";
  }
  if (plan.commands().empty()) {
    *run.environment.out << "Every cable between the Macs has addresses that work.\n";
    return;
  }
  std::string node;
  for (const v1::NetCommand& command : plan.commands()) {
    if (command.node_id() != node) {
      node = command.node_id();
      std::string name = node.substr(0, 8);
      for (const v1::NodeStatus& known : status.nodes()) {
        if (known.identity().node_id() == node) name = known.identity().hostname();
      }
      *run.environment.out << "\nOn " << Printable(name) << ", as root:\n";
    }
    *run.environment.out << "  " << Printable(command.command()) << "\n";
  }
  *run.environment.out
      << "\nThese last over a restart. 'sudo clusterctl net apply' carries out this "
         "machine's part, 'net undo' takes it back.\n";
}

absl::StatusOr<v1::NetPlan> AskPlan(AgentClient& client, const NetOptions& options) {
  v1::PlanNetRequest request;
  request.set_block(options.block);
  return client.PlanNet(request);
}

int RunNetPlan(const Invocation& run, const NetOptions& options) {
  AgentClient client(run.options.agent);
  const auto plan = AskPlan(client, options);
  if (!plan.ok()) return run.Fail(plan.status());
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  if (run.wants_table()) {
    PrintPlan(run, *plan, *status);
  } else {
    run.PrintDocument(Document("NetPlan", *plan));
  }
  return kExitOk;
}

absl::Status CheckRoot() {
  if (geteuid() == 0) return absl::OkStatus();
  return ReasonStatus(absl::StatusCode::kPermissionDenied, reasons::kNotRoot,
                      "network settings are changed as root only");
}

bool Agreed(const Invocation& run, bool yes) {
  if (yes) return true;
  *run.environment.err << "Type yes to go on: " << std::flush;
  std::string answer;
  return run.environment.in != nullptr && std::getline(*run.environment.in, answer) &&
         answer == "yes";
}

int RunNetApply(const Invocation& run, const NetOptions& options) {
  AgentClient client(run.options.agent);
  const auto plan = AskPlan(client, options);
  if (!plan.ok()) return run.Fail(plan.status());
  const std::string own = OwnId(client);
  std::vector<v1::NetCommand> mine;
  for (const v1::NetCommand& command : plan->commands()) {
    if (command.node_id() == own) mine.push_back(command);
  }
  if (mine.empty()) {
    *run.environment.out << "Nothing is to be done on this machine.\n";
    return kExitOk;
  }
  const absl::Status root = CheckRoot();
  if (!root.ok()) return run.Fail(root);
  for (const v1::NetCommand& command : mine) {
    *run.environment.out << "  " << Printable(command.command()) << "\n";
  }
  if (!Agreed(run, options.yes)) {
    *run.environment.err << "nothing was done\n";
    return kExitFailure;
  }
  std::vector<std::string> journal = ReadJournal(JournalPath(options));
  size_t done = 0;
  for (const v1::NetCommand& command : mine) {
    if (!command.undo().empty()) journal.push_back(command.undo());
    if (!WriteJournal(JournalPath(options), journal)) {
      *run.environment.err << "error: can't write " << Printable(JournalPath(options))
                           << ", so that nothing more is done\n";
      return kExitFailure;
    }
    const int code = RunProgram(run.environment, command.command());
    if (code != 0) {
      if (!command.undo().empty()) journal.pop_back();
      WriteJournal(JournalPath(options), journal);
      *run.environment.err
          << "error: exit code " << code << ": " << Printable(command.command()) << "\n  " << done
          << " of " << mine.size()
          << " commands were done\n  next:   'clusterctl net undo' takes them back\n";
      return kExitFailure;
    }
    ++done;
  }
  *run.environment.out << done << " commands done; 'clusterctl links' shows the effect\n";
  return kExitOk;
}

int RunNetUndo(const Invocation& run, const NetOptions& options) {
  std::vector<std::string> journal = ReadJournal(JournalPath(options));
  if (journal.empty()) {
    *run.environment.out << "Nothing was applied on this machine.\n";
    return kExitOk;
  }
  const absl::Status root = CheckRoot();
  if (!root.ok()) return run.Fail(root);
  for (auto it = journal.rbegin(); it != journal.rend(); ++it) {
    *run.environment.out << "  " << Printable(*it) << "\n";
  }
  if (!Agreed(run, options.yes)) {
    *run.environment.err << "nothing was done\n";
    return kExitFailure;
  }
  while (!journal.empty()) {
    const int code = RunProgram(run.environment, journal.back());
    if (code != 0) {
      *run.environment.err << "error: exit code " << code << ": " << Printable(journal.back())
                           << "\n  " << journal.size() << " commands are left in "
                           << Printable(JournalPath(options)) << "\n";
      return kExitFailure;
    }
    journal.pop_back();
    WriteJournal(JournalPath(options), journal);
  }
  *run.environment.out << "everything that was applied is taken back\n";
  return kExitOk;
}

}  // namespace

void AddNet(CommandTree& tree) {
  CLI::App* group = tree.Add(tree.root, "net", "Set static addresses for cables between Macs");
  group->require_subcommand(1);
  auto options = std::make_shared<NetOptions>();
  CLI::App* plan = tree.Add(group, "plan", "Print the commands for each Mac; nothing is changed");
  plan->add_option("--block", options->block,
                   "Network to take addresses from, such as 10.77.0.0/20")
      ->type_name("NETWORK");
  tree.OnChosen(plan, [options](const Invocation& run) { return RunNetPlan(run, *options); });
  CLI::App* apply = tree.Add(group, "apply", "Apply this machine's part (as root)");
  apply
      ->add_option("--block", options->block,
                   "Network to take addresses from, such as 10.77.0.0/20")
      ->type_name("NETWORK");
  CLI::App* undo = tree.Add(group, "undo", "Undo exactly what 'apply' changed here (as root)");
  for (CLI::App* command : {apply, undo}) {
    command->add_flag("--yes", options->yes, "Do not ask");
    command->add_option("--journal", options->journal, "File that records what was changed")
        ->type_name("FILE");
  }
  tree.OnChosen(apply, [options](const Invocation& run) { return RunNetApply(run, *options); });
  tree.OnChosen(undo, [options](const Invocation& run) { return RunNetUndo(run, *options); });
}

}  // namespace macrame::cli
