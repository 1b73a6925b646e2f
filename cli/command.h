#pragma once

// What a subcommand's file offers and is given.
//
// Each file adds its subcommand to the option tree and, when it is chosen, hands over a function
// that does the work. Flags are checked by then: nothing has happened before the whole command line
// is known to be right. Usage errors found later are thrown as CLI::ValidationError by callbacks
// only.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "cli/agent_client.h"
#include "cli/environment.h"
#include "cli/exit_codes.h"
#include "cli/format/message_json.h"
#include "cli/format/text.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::cli {

enum class OutputFormat { kTable, kJson, kYaml };

// Flags that every subcommand takes.
struct GlobalOptions {
  AgentPlace agent;
  OutputFormat output = OutputFormat::kTable;
  ColorMode color = ColorMode::kAuto;
  bool quiet = false;
};

// One run, after the command line was read.
struct Invocation {
  const Environment& environment;
  const GlobalOptions& options;
  Style style;      // for stdout
  Style err_style;  // for stderr

  bool wants_table() const { return options.output == OutputFormat::kTable; }
  // In the chosen format; not for kTable.
  void PrintDocument(const Json& document) const;
  // The error on stderr, as a block or as JSON; returns its exit code.
  int Fail(const absl::Status& status) const;
};

using RunCommand = std::function<int(const Invocation&)>;

// The tree of subcommands while it is built.
struct CommandTree {
  CLI::App* root = nullptr;
  std::string group;  // heading in --help of the subcommands of `root` that are added next
  RunCommand chosen;

  // The subcommand `name` of `parent`, with a description; its flags may stand before or after.
  CLI::App* Add(CLI::App* parent, const std::string& name, const std::string& description);
  // What runs when `command` was typed.
  void OnChosen(CLI::App* command, RunCommand run);
};

// "plan" and "model load" take the same options.
struct PlacementFlags {
  uint32_t context = 0;
  std::string parallelism = "auto";
  std::vector<std::string> nodes;
  uint32_t ranks = 0;
  std::string transport;
  std::string optimize = "latency";
  std::string strictness = "normal";
  std::vector<std::string> excluded;
  uint32_t sequences = 0;
  uint32_t users = 0;
  uint32_t prompt_tokens = 0;
  std::string tenant;
  uint32_t kv_bits = 0;
};
void AddPlacementFlags(CLI::App* command, PlacementFlags* options);
// All but the nodes.
v1::PlacementOptions PlacementWithoutNodes(const PlacementFlags& options);
// "a,b" and "c" are a, b and c.
std::vector<std::string> NamesIn(const std::vector<std::string>& lists);
// A check for flags that are lists or names: an empty one, as of a script's unset variable, says
// nothing and would be ignored. What is wrong, or "".
std::string NamesSomething(const std::string& list);
// Names of nodes become their ids, which takes a question to the agent when there are any.
absl::StatusOr<v1::PlacementOptions> ResolvePlacement(const PlacementFlags& options,
                                                      AgentClient& client);

// The id of the node that `name` (a hostname, or four or more digits of an id) means.
absl::StatusOr<std::string> ResolveNode(const v1::ClusterStatus& status, const std::string& name);

// The same, or those of all nodes with the label that "KEY=VALUE" names.
absl::StatusOr<std::vector<std::string>> ResolveEach(const v1::ClusterStatus& status,
                                                     const std::string& name);

// Ids of all of them; asks the agent only when there are any.
absl::StatusOr<std::vector<std::string>> ResolveNodes(AgentClient& client,
                                                      const std::vector<std::string>& names);

// A model named by a path is named as the agent will find it, whatever its own working folder is.
std::string AbsoluteModelPath(const std::string& name_or_path);

void AddRun(CommandTree& tree);
void AddChat(CommandTree& tree);
void AddPs(CommandTree& tree);
void AddLs(CommandTree& tree);
void AddCordon(CommandTree& tree);  // `cordon`, `drain`, `uncordon`
void AddEvents(CommandTree& tree);
void AddDebug(CommandTree& tree);
void AddHelp(CommandTree& tree);
void AddTop(CommandTree& tree);
void AddCompletion(CommandTree& tree);  // and the hidden `__complete`
void AddDevicesList(CommandTree& tree);
void AddNodes(CommandTree& tree);
void AddStatus(CommandTree& tree);  // `status` and `cluster status`
void AddModelLoad(CommandTree& tree, CLI::App* model);
void AddModelImport(CommandTree& tree, CLI::App* model);
void AddModelList(CommandTree& tree, CLI::App* model);
void AddModelCheck(CommandTree& tree, CLI::App* model);
void AddModelVerify(CommandTree& tree, CLI::App* model);
void AddModelProfile(CommandTree& tree, CLI::App* model);
void AddModelStatus(CommandTree& tree, CLI::App* model);
void AddModelStats(CommandTree& tree, CLI::App* model);
void AddModelUnload(CommandTree& tree, CLI::App* model);
void AddModelInfer(CommandTree& tree, CLI::App* model);
void AddBench(CommandTree& tree);
void AddTrace(CommandTree& tree);
void AddLogs(CommandTree& tree);
void AddPlan(CommandTree& tree);
void AddCapacity(CommandTree& tree);
void AddTopology(CommandTree& tree);
void AddClusterInit(CommandTree& tree, CLI::App* cluster);
void AddClusterAuthority(CommandTree& tree, CLI::App* cluster);
void AddClusterToken(CommandTree& tree, CLI::App* cluster);
void AddClusterJoin(CommandTree& tree, CLI::App* cluster);
void AddClusterStatus(CommandTree& tree, CLI::App* cluster);
void AddClusterHealth(CommandTree& tree, CLI::App* cluster);
void AddClusterPause(CommandTree& tree, CLI::App* cluster);  // `drain`, `stop`, `start`
void AddVersion(CommandTree& tree);
void AddLinks(CommandTree& tree);
void AddStats(CommandTree& tree);
void AddMetrics(CommandTree& tree);
void AddNodesForget(CommandTree& tree);  // these after AddNodes
void AddNodesApprove(CommandTree& tree);
void AddNodesRevoke(CommandTree& tree);
void AddNodesMark(CommandTree& tree);  // `nodes label`, `nodes dedicate`
void AddSpeeds(CommandTree& tree);
void AddDoctor(CommandTree& tree);
void AddExport(CommandTree& tree);
void AddValidate(CommandTree& tree);
void AddVerify(CommandTree& tree);
void AddRdma(CommandTree& tree);
void AddNet(CommandTree& tree);
void AddService(CommandTree& tree);
void AddKey(CommandTree& tree);
void AddTenant(CommandTree& tree);
void AddAudit(CommandTree& tree);

// The version that this binary was built as.
std::string ClientVersion();

}  // namespace macrame::cli
