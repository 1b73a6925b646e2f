#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/command.h"
#include "proto/backends.h"
#include "proto/ids.h"
#include "proto/reasons.h"
#include "proto/serving_limits.h"
#include "proto/suggestions.h"

namespace macrame::cli {
namespace {

constexpr uint32_t kContextMax = 16 * 1024 * 1024;
constexpr uint32_t kSequencesMax = 4096;
constexpr uint32_t kRanksMax = 1024;

}  // namespace

absl::StatusOr<std::string> ResolveNode(const v1::ClusterStatus& status, const std::string& name) {
  std::vector<std::string> by_name, by_id, known;
  if (name.empty()) {  // as of a script's unset variable; a node without a name is not meant
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                        "the name of a node is empty");
  }
  for (const v1::NodeStatus& node : status.nodes()) {
    const auto& identity = node.identity();
    if (absl::EqualsIgnoreCase(identity.hostname(), name)) {
      by_name.push_back(identity.node_id());
    } else if (IsBeginningOfId(name, identity.node_id())) {
      by_id.push_back(identity.node_id());
    }
    known.push_back(identity.hostname());
  }
  // A whole name is meant before the beginning of another node's id.
  const std::vector<std::string>& found = by_name.empty() ? by_id : by_name;
  if (found.size() == 1) return found[0];
  if (found.empty()) {
    return ReasonStatus(
        absl::StatusCode::kNotFound, reasons::kNodeNotFound,
        absl::StrCat("no node is called '", name, "'; ",
                     known.empty() ? "the agent knows none" : "there are: " + NameList(known),
                     DidYouMean(name, known)));
  }
  return ReasonStatus(
      absl::StatusCode::kNotFound, reasons::kNodeAmbiguous,
      absl::StrCat("'", name, "' fits ", found.size(), " nodes, of the ids: ", NameList(found)));
}

absl::StatusOr<std::vector<std::string>> ResolveEach(const v1::ClusterStatus& status,
                                                     const std::string& name) {
  const size_t sign = name.find('=');
  if (sign == std::string::npos) {
    const absl::StatusOr<std::string> one = ResolveNode(status, name);
    if (!one.ok()) return one.status();
    return std::vector<std::string>{*one};
  }
  std::vector<std::string> found;
  for (const v1::NodeStatus& node : status.nodes()) {
    if (node.state() == v1::NODE_STATE_LEFT) continue;  // no plan knows it
    for (const v1::NodeLabel& label : node.marks().labels()) {
      const bool fits =
          label.key() == name.substr(0, sign) && label.value() == name.substr(sign + 1);
      if (fits) found.push_back(node.identity().node_id());
    }
  }
  if (!found.empty()) return found;
  return ReasonStatus(absl::StatusCode::kNotFound, reasons::kNodeNotFound,
                      absl::StrCat("no node that is there has the label '", name,
                                   "'; 'clusterctl nodes label' gives it one"));
}

void AddPlacementFlags(CLI::App* command, PlacementFlags* options) {
  command
      ->add_option("--context", options->context,
                   "Tokens of prompt and answer together (default: by free memory)")
      ->check(CLI::Range(1u, kContextMax));
  command
      ->add_option("--parallelism", options->parallelism,
                   "Split of the model over ranks (default: auto)")
      ->check(CLI::IsMember({"auto", "tensor", "pipeline"}));
  command
      ->add_option("--nodes", options->nodes,
                   "Use only these nodes (hostname, id, or KEY=VALUE of a label)")
      ->type_name("NODES")
      ->expected(1)
      ->check(NamesSomething)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--transport", options->transport,
                   "Backend between ranks (default: the best that works)")
      ->check(CLI::IsMember(TransportNames()));
  command->add_option("--ranks", options->ranks, "Number of ranks")
      ->check(CLI::Range(1u, kRanksMax));
  command
      ->add_option("--optimize", options->optimize,
                   "Goal: latency of one user, throughput of all, or least memory")
      ->check(CLI::IsMember({"latency", "throughput", "memory"}));
  command
      ->add_option("--strictness", options->strictness,
                   "Safety margin of memory: 12.5, 5 or 2 % (default: normal)")
      ->check(CLI::IsMember({"safe", "normal", "tight"}));
  command
      ->add_option("--exclude", options->excluded,
                   "Do not use these nodes (hostname, id, or KEY=VALUE of a label)")
      ->type_name("NODES")
      ->expected(1)
      ->check(NamesSomething)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--sequences", options->sequences,
                   "Number of concurrent requests to reserve caches for (default: --users)")
      ->check(CLI::Range(1u, kSequencesMax));
  command->add_option("--users", options->users, "Number of concurrent users to predict for")
      ->check(CLI::Range(1u, kSequencesMax));
  command
      ->add_option("--prompt-tokens", options->prompt_tokens,
                   "Tokens of the prompt to predict the first token's time for")
      ->check(CLI::Range(1u, kContextMax));
  command
      ->add_option("--kv-bits", options->kv_bits,
                   "Bits per KV cache value: 16 (default), 8, or 4 on GPUs")
      ->check(CLI::Range(2u, 32u));
  command->add_option("--tenant", options->tenant, "Tenant whose keys alone may use the model")
      ->type_name("TENANT");
}

std::string AbsoluteModelPath(const std::string& name_or_path) {
  std::error_code error;
  const std::filesystem::path path(name_or_path);
  const bool meant_as_path = name_or_path.rfind(".", 0) == 0 || path.is_absolute();
  if (!meant_as_path && !std::filesystem::exists(path / "config.json", error)) return name_or_path;
  const auto absolute = std::filesystem::absolute(path, error).lexically_normal();
  return error ? name_or_path : absolute.string();
}

v1::PlacementOptions PlacementWithoutNodes(const PlacementFlags& options) {
  v1::PlacementOptions placement;
  placement.set_context_length(options.context);
  placement.set_world_size(options.ranks);
  if (options.transport != "auto") placement.set_transport(options.transport);
  placement.set_parallelism(options.parallelism == "tensor"     ? v1::PARALLELISM_TENSOR
                            : options.parallelism == "pipeline" ? v1::PARALLELISM_PIPELINE
                                                                : v1::PARALLELISM_AUTO);
  if (options.optimize == "throughput") placement.set_optimize(v1::OPTIMIZE_THROUGHPUT);
  if (options.optimize == "memory") placement.set_optimize(v1::OPTIMIZE_MEMORY);
  if (options.strictness == "safe") placement.set_strictness(v1::STRICTNESS_SAFE);
  if (options.strictness == "tight") placement.set_strictness(v1::STRICTNESS_TIGHT);
  placement.set_concurrent_sequences(options.sequences);
  placement.set_users(options.users);
  placement.set_prompt_tokens(options.prompt_tokens);
  placement.set_tenant(options.tenant);
  placement.set_kv_bits(options.kv_bits);
  return placement;
}

std::vector<std::string> NamesIn(const std::vector<std::string>& lists) {
  std::vector<std::string> names;
  for (const absl::string_view part : absl::StrSplit(absl::StrJoin(lists, ","), ',')) {
    std::string name(absl::StripAsciiWhitespace(part));
    if (!name.empty()) names.push_back(std::move(name));
  }
  return names;
}

std::string NamesSomething(const std::string& list) {
  return NamesIn({list}).empty() ? "nothing is named" : "";
}

absl::StatusOr<v1::PlacementOptions> ResolvePlacement(const PlacementFlags& options,
                                                      AgentClient& client) {
  const uint32_t bits = options.kv_bits;
  if (bits != 0 && !MayHaveKvBits(bits)) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                        absl::StrCat("--kv-bits ", bits, ": rankd keeps a KV cache in ",
                                     kKvBitsDefault, " bits (the default), in ", kKvBitsNarrow,
                                     " or, on GPUs, in ", kKvBitsFewest));
  }
  v1::PlacementOptions placement = PlacementWithoutNodes(options);
  if (options.nodes.empty() && options.excluded.empty()) return placement;
  const auto status = client.GetStatus();
  if (!status.ok()) return status.status();
  const auto resolve = [&](const std::vector<std::string>& lists, auto* ids) -> absl::Status {
    for (const std::string& name : NamesIn(lists)) {
      const auto found = ResolveEach(*status, name);
      if (!found.ok()) return found.status();
      ids->Add(found->begin(), found->end());
    }
    return absl::OkStatus();
  };
  if (auto bad = resolve(options.nodes, placement.mutable_node_ids()); !bad.ok()) return bad;
  if (auto bad = resolve(options.excluded, placement.mutable_excluded_node_ids()); !bad.ok()) {
    return bad;
  }
  return placement;
}

}  // namespace macrame::cli
