#include "cli/app.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/agent_place.h"
#include "cli/command.h"
#include "cli/format/reason_text.h"
#include "cli/help_text.h"
#include "proto/reasons.h"
#include "proto/suggestions.h"
#include "proto/utf8.h"

namespace macrame::cli {
namespace {

const std::map<std::string, OutputFormat>& Formats() {
  static const std::map<std::string, OutputFormat> formats = {{"table", OutputFormat::kTable},
                                                              {"json", OutputFormat::kJson},
                                                              {"yaml", OutputFormat::kYaml}};
  return formats;
}

const std::map<std::string, ColorMode>& ColorModes() {
  static const std::map<std::string, ColorMode> modes = {
      {"auto", ColorMode::kAuto}, {"always", ColorMode::kAlways}, {"never", ColorMode::kNever}};
  return modes;
}

struct RawOptions {
  PlaceFlags place;
  std::string output, color;
  bool json = false, quiet = false;
};

void AddGlobalFlags(CLI::App& app, RawOptions* raw) {
  app.add_option("--socket", raw->place.socket, "Path of the agent's socket (MACRAME_SOCKET)")
      ->type_name("PATH");
  app.add_option("--access", raw->place.access,
                 "Use a cluster from another machine, with this access file (MACRAME_ACCESS)")
      ->type_name("FILE");
  app.add_option("--host", raw->place.host, "Node to ask: name, id or NAME[:PORT] (MACRAME_HOST)")
      ->type_name("HOST");
  app.add_option("-o,--output", raw->output,
                 "Format of the output (MACRAME_OUTPUT; default: table)")
      ->check(CLI::IsMember({"table", "json", "yaml"}));
  app.add_flag("--json", raw->json, "Same as -o json");
  app.add_option("--color", raw->color,
                 "Use of colors (default: auto; NO_COLOR and CLICOLOR_FORCE are read)")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  app.add_flag("-q,--quiet", raw->quiet, "Print no progress and no statistics");
  app.set_version_flag("--version", absl::StrCat("clusterctl ", ClientVersion()));
}

// Flag, then variable, then default.
std::string Resolve(const std::string& flag, const std::string& variable,
                    const std::string& otherwise) {
  return !flag.empty() ? flag : !variable.empty() ? variable : otherwise;
}

absl::StatusOr<GlobalOptions> Check(const RawOptions& raw, const Environment& environment) {
  GlobalOptions options;
  options.quiet = raw.quiet;
  absl::StatusOr<AgentPlace> agent = ChooseAgent(raw.place, environment);
  if (!agent.ok()) return agent.status();
  options.agent = *std::move(agent);
  const std::string format =
      raw.json ? "json" : Resolve(raw.output, environment.variable("MACRAME_OUTPUT"), "table");
  const auto found = Formats().find(format);
  if (found == Formats().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("MACRAME_OUTPUT is '", format, "'; table, json and yaml are known"));
  }
  options.output = found->second;
  options.color = ColorModes().at(raw.color.empty() ? "auto" : raw.color);
  return options;
}

void AddModel(CommandTree& tree) {
  CLI::App* model = tree.Add(tree.root, "model", "Load, ask and unload models");
  model->require_subcommand(1);
  AddModelLoad(tree, model);
  AddModelList(tree, model);
  AddModelImport(tree, model);
  AddModelInfer(tree, model);
  AddModelCheck(tree, model);
  AddModelVerify(tree, model);
  AddModelProfile(tree, model);
  AddModelStatus(tree, model);
  AddModelStats(tree, model);
  AddModelUnload(tree, model);
}

void AddCluster(CommandTree& tree) {
  CLI::App* cluster = tree.Add(tree.root, "cluster", "Create, join and check a cluster");
  cluster->require_subcommand(1);
  AddClusterInit(tree, cluster);
  AddClusterAuthority(tree, cluster);
  AddClusterToken(tree, cluster);
  AddClusterJoin(tree, cluster);
  AddClusterStatus(tree, cluster);
  AddClusterHealth(tree, cluster);
  AddClusterPause(tree, cluster);
}

// In the order of --help.
void AddCommands(CommandTree& tree) {
  tree.group = "Use models";
  AddRun(tree);
  AddChat(tree);
  AddPs(tree);
  AddLs(tree);
  AddModel(tree);
  AddPlan(tree);
  tree.group = "Look";
  AddStatus(tree);
  AddTop(tree);
  AddDevicesList(tree);
  AddNodes(tree);
  AddStats(tree);
  AddEvents(tree);
  AddLogs(tree);
  AddMetrics(tree);
  tree.group = "Operate";
  AddNodesForget(tree);
  AddNodesApprove(tree);
  AddNodesRevoke(tree);
  AddNodesMark(tree);
  AddCordon(tree);
  AddKey(tree);
  AddTenant(tree);
  AddAudit(tree);
  tree.group = "Set up";
  AddCluster(tree);
  AddService(tree);
  AddNet(tree);
  AddRdma(tree);
  AddTopology(tree);
  AddCapacity(tree);
  AddExport(tree);
  AddValidate(tree);
  AddCompletion(tree);
  tree.group = "Find faults";
  AddDoctor(tree);
  AddLinks(tree);
  AddVerify(tree);
  AddBench(tree);
  AddTrace(tree);
  AddSpeeds(tree);
  AddDebug(tree);
  tree.group = "About clusterctl";
  AddHelp(tree);
  AddVersion(tree);
}

std::string Footer() { return absl::StrCat(HelpFooter("clusterctl"), "\n", ExitCodesText()); }

// The deepest subcommand that the words name, and the first word that names none.
struct Unknown {
  CLI::App* parent = nullptr;
  std::string word;
  std::string path = "clusterctl";
};

Unknown FindUnknownWord(CLI::App& root, const std::vector<std::string>& arguments) {
  Unknown result;
  result.parent = &root;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!word.empty() && word[0] == '-') {
      const CLI::Option* option = root.get_option_no_throw(word);
      if (option != nullptr && option->get_expected_min() > 0) ++i;
      continue;
    }
    const auto below =
        result.parent->get_subcommands([&](CLI::App* sub) { return sub->get_name() == word; });
    if (below.empty()) {
      if (!result.parent->get_subcommands([](CLI::App*) { return true; }).empty()) {
        result.word = word;
      }
      return result;
    }
    result.parent = below[0];
    absl::StrAppend(&result.path, " ", word);
  }
  return result;
}

// The command line could not be read, so what it asked for is looked for by hand.
bool WantsDocuments(const std::vector<std::string>& arguments, const Environment& environment) {
  std::string format = environment.variable("MACRAME_OUTPUT");
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const bool takes_next = word == "-o" || word == "--output";
    if (takes_next && i + 1 < arguments.size()) format = arguments[i + 1];
    if (absl::StartsWith(word, "--output=")) format = word.substr(9);
    if (absl::StartsWith(word, "-o") && word.size() > 2) format = word.substr(2);
    if (word == "--json") format = "json";
  }
  return format == "json" || format == "yaml";
}

int FailUsage(const std::vector<std::string>& arguments, const Environment& environment,
              const std::string& what, const std::string& next) {
  if (WantsDocuments(arguments, environment)) {
    v1::Reason reason = MakeReason(reasons::kBadRequest, what);
    reason.set_remedy(next);
    *environment.err << ToJsonText(
        ErrorDocument(ReasonStatus(absl::StatusCode::kInvalidArgument, reason)));
    return kExitUsage;
  }
  *environment.err << "error: " << Printable(what) << "\n";
  if (!next.empty()) *environment.err << "  next:   " << Printable(next) << "\n";
  return kExitUsage;
}

int PrintUsageError(CLI::App& app, const std::vector<std::string>& arguments,
                    const CLI::ParseError& error, const Environment& environment) {
  const Unknown unknown = FindUnknownWord(app, arguments);
  std::vector<std::string> names;
  for (const CLI::App* sub : unknown.parent->get_subcommands([](CLI::App*) { return true; })) {
    if (!sub->get_group().empty()) names.push_back(sub->get_name());
  }
  std::string what = error.what();
  std::string next = absl::StrCat(unknown.path, " --help");
  if (!unknown.word.empty()) {
    what = absl::StrCat("'", unknown.path, "' has no subcommand '", unknown.word, "'");
    const std::string near = SuggestedName(unknown.word, names);
    const std::string other =
        unknown.parent == &app ? WordOfOtherTools(unknown.word) : std::string();
    if (!other.empty()) {
      next = other;
    } else if (!near.empty()) {
      absl::StrAppend(&what, "; did you mean: ", unknown.path, " ", near);
    }
  } else if (!names.empty()) {
    what = absl::StrCat("'", unknown.path, "' needs a subcommand: ", absl::StrJoin(names, ", "));
    const std::string& last = unknown.parent->get_name();
    const std::string other =
        unknown.parent->get_parent() == &app ? WordOfOtherTools(last) : std::string();
    if (!other.empty()) absl::StrAppend(&what, ". For an overview: ", other);
  }
  return FailUsage(arguments, environment, what, next);
}

}  // namespace

std::string ClientVersion() { return MACRAME_VERSION; }

CLI::App* CommandTree::Add(CLI::App* parent, const std::string& name,
                           const std::string& description) {
  CLI::App* command = parent->add_subcommand(name, description);
  command->fallthrough();
  command->group(parent == root ? group : "Subcommands");
  std::string path = name;
  for (const CLI::App* above = parent; above != nullptr; above = above->get_parent()) {
    path = absl::StrCat(above->get_name(), " ", path);
  }
  command->footer([path] {
    return absl::StrCat(HelpFooter(path), "\nExit codes: 'clusterctl --help' lists them.\n");
  });
  return command;
}

void CommandTree::OnChosen(CLI::App* command, RunCommand run) {
  command->callback([this, command, run = std::move(run)] {
    // One that has subcommands of its own runs only when none of them was typed.
    if (command->get_subcommands().empty()) chosen = run;
  });
}

void Invocation::PrintDocument(const Json& document) const {
  *environment.out << (options.output == OutputFormat::kYaml ? ToYamlText(document)
                                                             : ToJsonText(document))
                   << std::flush;
}

int Invocation::Fail(const absl::Status& status) const {
  if (wants_table()) {
    *environment.err << ErrorBlock(status, err_style);
  } else {
    *environment.err << ToJsonText(ErrorDocument(status));
  }
  return ExitCodeOf(status);
}

namespace {

int Run(const std::vector<std::string>& arguments, const Environment& environment) {
  CLI::App app("Manage a Macrame cluster: its machines and the models that they serve.",
               "clusterctl");
  app.formatter(MakeHelpFormatter());
  RawOptions raw;
  AddGlobalFlags(app, &raw);
  app.require_subcommand(1);
  app.footer([] { return Footer(); });
  CommandTree tree;
  tree.root = &app;
  AddCommands(tree);
  for (const std::string& argument : arguments) {
    if (FirstNonUtf8(argument) == argument.size()) continue;
    return FailUsage(arguments, environment,
                     absl::StrCat("'", Printable(argument), "' is not text in UTF-8"), "");
  }
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::Success& asked) {
    // --help and --version.
    app.exit(asked, *environment.out, *environment.err);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    return PrintUsageError(app, arguments, error, environment);
  }
  const auto options = Check(raw, environment);
  if (!options.ok()) {
    return FailUsage(arguments, environment, std::string(options.status().message()), "");
  }
  Environment err_side = environment;
  err_side.out_is_terminal = environment.err_is_terminal;
  const Invocation invocation{environment, *options, Style(UseColor(options->color, environment)),
                              Style(UseColor(options->color, err_side))};
  return tree.chosen(invocation);
}

}  // namespace

// If the output could not be written, the command fails even when its action succeeded.
int RunClusterctl(const std::vector<std::string>& arguments, const Environment& environment) {
  const int code = Run(arguments, environment);
  const bool was_written = environment.out->good();
  errno = 0;
  environment.out->flush();
  if (was_written && environment.out->good()) return code;
  // Who reads no further (a pipe into head) has what they wanted.
  if (errno == EPIPE || code != kExitOk) return code;
  *environment.err << "error: the output can't be written"
                   << (errno == 0 ? "" : absl::StrCat(": ", std::strerror(errno)))
                   << "\n  next:   see whether the disk that it goes to is full\n";
  return kExitFailure;
}

}  // namespace macrame::cli
