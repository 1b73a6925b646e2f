#include "cli/app.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/format/reason_text.h"
#include "proto/near_miss.h"
#include "transport/unix_socket.h"

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
  std::string socket, output, color;
  bool json = false, quiet = false;
};

void AddGlobalFlags(CLI::App& app, RawOptions* raw) {
  app.add_option("--socket", raw->socket, "The agent's socket (MACRAME_SOCKET)");
  app.add_option("-o,--output", raw->output, "table, json or yaml (MACRAME_OUTPUT)")
      ->check(CLI::IsMember({"table", "json", "yaml"}));
  app.add_flag("--json", raw->json, "The same as -o json");
  app.add_option("--color", raw->color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  app.add_flag("-q,--quiet", raw->quiet, "No progress and no statistics");
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
  options.socket_path =
      Resolve(raw.socket, environment.variable("MACRAME_SOCKET"), transport::SocketToAsk());
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

void AddCommands(CommandTree& tree) {
  AddDevicesList(tree);
  AddNodesForget(tree);
  AddNodesApprove(tree);
  AddNodesRevoke(tree);
  AddStatus(tree);
  CLI::App* model = tree.Add(tree.root, "model", "Load, ask and unload models");
  model->require_subcommand(1);
  AddModelLoad(tree, model);
  AddModelList(tree, model);
  AddModelImport(tree, model);
  AddModelInfer(tree, model);
  AddModelCheck(tree, model);
  AddModelStats(tree, model);
  AddModelUnload(tree, model);
  AddBench(tree);
  AddTrace(tree);
  AddPlan(tree);
  AddCapacity(tree);
  AddTopology(tree);
  AddLogs(tree);
  CLI::App* cluster = tree.Add(tree.root, "cluster", "Make a cluster; see how it is");
  cluster->require_subcommand(1);
  AddClusterInit(tree, cluster);
  AddClusterToken(tree, cluster);
  AddClusterJoin(tree, cluster);
  AddClusterStatus(tree, cluster);
  AddLinks(tree);
  AddDoctor(tree);
  AddStats(tree);
  AddSpeeds(tree);
  AddExport(tree);
  AddValidate(tree);
  AddVerify(tree);
  AddRdma(tree);
  AddNet(tree);
  AddService(tree);
  AddVersion(tree);
}

std::string Footer() {
  return absl::StrCat(ExitCodesText(),
                      "\nVariables: MACRAME_SOCKET, MACRAME_OUTPUT, NO_COLOR, CLICOLOR_FORCE.\n"
                      "Start with: clusterctl devices list\n");
}

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

int PrintUsageError(CLI::App& app, const std::vector<std::string>& arguments,
                    const CLI::ParseError& error, const Environment& environment) {
  const Unknown unknown = FindUnknownWord(app, arguments);
  std::ostream& err = *environment.err;
  std::vector<std::string> names;
  for (const CLI::App* sub : unknown.parent->get_subcommands([](CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  if (!unknown.word.empty()) {
    err << "error: '" << Printable(unknown.path) << "' has no subcommand '"
        << Printable(unknown.word) << "'\n";
    const std::string near = NearMiss(unknown.word, names);
    if (!near.empty()) err << "  did you mean: " << unknown.path << " " << near << "\n";
  } else if (!names.empty()) {
    err << "error: '" << unknown.path << "' needs a subcommand: ";
    for (size_t i = 0; i < names.size(); ++i) err << (i > 0 ? ", " : "") << names[i];
    err << "\n";
  } else {
    err << "error: " << Printable(error.what()) << "\n";
  }
  err << "  next:   " << unknown.path << " --help\n";
  return kExitUsage;
}

}  // namespace

std::string ClientVersion() { return MACRAME_VERSION; }

CLI::App* CommandTree::Add(CLI::App* parent, const std::string& name,
                           const std::string& description) {
  CLI::App* command = parent->add_subcommand(name, description);
  command->fallthrough();
  command->footer([] { return ExitCodesText(); });
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

int RunClusterctl(const std::vector<std::string>& arguments, const Environment& environment) {
  CLI::App app("Macrame's tool: the machines of a cluster and the models that they serve.",
               "clusterctl");
  RawOptions raw;
  AddGlobalFlags(app, &raw);
  app.require_subcommand(1);
  app.footer([] { return Footer(); });
  CommandTree tree;
  tree.root = &app;
  AddCommands(tree);
  for (const std::string& argument : arguments) {
    if (FirstNonUtf8(argument) == argument.size()) continue;
    *environment.err << "error: '" << Printable(argument) << "' is not text in UTF-8\n";
    return kExitUsage;
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
    *environment.err << "error: " << Printable(std::string(options.status().message())) << "\n";
    return kExitUsage;
  }
  Environment err_side = environment;
  err_side.out_is_terminal = environment.err_is_terminal;
  const Invocation invocation{environment, *options, Style(UseColor(options->color, environment)),
                              Style(UseColor(options->color, err_side))};
  return tree.chosen(invocation);
}

}  // namespace macrame::cli
