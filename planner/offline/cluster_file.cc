#include "planner/offline/cluster_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/chip_table.h"
#include "planner/link_costs.h"
#include "planner/saturating.h"
#include "planner/served_by.h"
#include "proto/backends.h"
#include "proto/bytes.h"
#include "proto/reasons.h"
#include "proto/suggestions.h"

namespace macrame::planner {
namespace {

constexpr double kGiga = 1e9;
constexpr double kBitsPerByte = 8;
constexpr double kMemoryGibMax = 1 << 20;
// Cables by one word between more nodes than this would be too many links.
constexpr int kCabledNodesMax = 512;

// What is wrong with a file; becomes a status at the door.
struct Fault {
  std::string what;
};

std::string PlaceText(const YAML::Mark& mark) {
  return mark.is_null() ? ""
                        : absl::StrCat("line ", mark.line + 1, ", column ", mark.column + 1, ": ");
}

double Number(const YAML::Node& node, const char* key, double otherwise, double most) {
  if (!node[key]) return otherwise;
  const double value = node[key].as<double>();
  if (!(value >= 0 && value <= most)) {
    throw Fault{absl::StrCat(PlaceText(node[key].Mark()), "'", key, "' is ",
                             absl::StrFormat("%.10g; between 0 and %.10g", value, most),
                             " makes sense")};
  }
  return value;
}

uint64_t Memory(const YAML::Node& node, const char* key, uint64_t otherwise) {
  if (!node[key]) return otherwise;
  return static_cast<uint64_t>(Number(node, key, 0, kMemoryGibMax) * kBytesPerGiB);
}

// What stands under `key`; nothing does: an empty list.
YAML::Node List(const YAML::Node& node, const char* key) {
  const YAML::Node list = node[key];
  if (!list || list.IsNull() || list.IsSequence()) return list ? list : YAML::Node();
  throw Fault{absl::StrCat("'", key, "' is a list: each entry stands on a line of its own that ",
                           "begins with '- '")};
}

bool Flag(const YAML::Node& node, const char* key, bool otherwise) {
  return node[key] ? node[key].as<bool>() : otherwise;
}

void RefuseUnknownKeys(const YAML::Node& node, const std::set<std::string>& known) {
  if (!node.IsMap()) {
    throw Fault{absl::StrCat(PlaceText(node.Mark()), "keys with values are expected, such as '",
                             *known.begin(), ": …'")};
  }
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    if (!seen.insert(key).second) {
      throw Fault{absl::StrCat(PlaceText(entry.first.Mark()), "'", key, "' stands there twice")};
    }
    if (known.count(key) > 0) continue;
    throw Fault{absl::StrCat(PlaceText(entry.first.Mark()), "'", key,
                             "' is not a key that is known",
                             DidYouMean(key, {known.begin(), known.end()}))};
  }
}

// Chips are called by their generation and size; those that the table has.
std::vector<std::string> ChipNames() {
  constexpr int kGenerations = 9;
  std::vector<std::string> names;
  for (int generation = 1; generation <= kGenerations; ++generation) {
    for (const char* size : {"", " Pro", " Max", " Ultra"}) {
      std::string name = absl::StrCat("Apple M", generation, size);
      const Chip* chip = FindChip(name);
      if (chip != nullptr && chip->name == name) names.push_back(std::move(name));
    }
  }
  return names;
}

// Of "Apple M4 Max" and "apple-m4max" the same.
std::string Letters(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) letters += absl::ascii_tolower(c);
  }
  return letters;
}

v1::PlannerNode BareNode(const YAML::Node& node, const std::string& name) {
  v1::PlannerNode made;
  made.set_node_id(name);
  made.set_hostname(name);
  made.set_schedulable(true);
  made.set_chip(node["chip"] ? node["chip"].as<std::string>() : "");
  const Chip* chip = FindChip(made.chip());
  // The maker may be left out, and nothing else.
  const std::string said = Letters(made.chip());
  const bool is_known = chip != nullptr && absl::EndsWith(Letters(chip->name), said);
  const bool is_apple = chip != nullptr || absl::StartsWith(said, "apple");
  const Gpu* gpu = chip == nullptr ? FindGpu(made.chip()) : nullptr;
  const bool is_told = gpu != nullptr || node["bandwidth_gb_s"] || (!is_apple && node["gpu_cores"]);
  if (!made.chip().empty() && !is_known && !is_told) {
    throw Fault{absl::StrCat("the chip '", made.chip(), "' is not in the table of chips ('Apple ",
                             "M4 Max' is); 'bandwidth_gb_s' and 'gpu_cores' say what it can",
                             DidYouMean(made.chip(), ChipNames()))};
  }
  if (is_known) made.set_chip(std::string(chip->name));
  if (!node["memory_gib"]) throw Fault{"neither 'machine' nor 'memory_gib' says how much memory"};
  const auto memory_gib = static_cast<uint32_t>(Number(node, "memory_gib", 0, kMemoryGibMax));
  if (Memory(node, "memory_gib", 0) == 0) throw Fault{"'memory_gib' is 0: a machine has some"};
  made.set_gpu_cores(static_cast<uint32_t>(Number(
      node, "gpu_cores",
      chip == nullptr ? static_cast<double>(gpu != nullptr) : GpuCoresWith(*chip, memory_gib),
      100'000)));
  made.set_memory_total_bytes(Memory(node, "memory_gib", 0));
  made.set_memory_usable_bytes(chip == nullptr ? made.memory_total_bytes()
                                               : GpuUsableBytes(made.memory_total_bytes()));
  return made;
}

// As far as the description and the tables of chips tell.
void SayWhyNoRdma(const YAML::Node& node, v1::PlannerNode* made) {
  constexpr uint32_t kThunderboltWithRdma = 5;
  const Chip* chip = FindChip(made->chip());
  if (!Flag(node, "rdma", true)) {
    *made->mutable_rdma_unavailable() = MakeReason(
        reasons::kRdmaDisabledLocal, "the description says that RDMA is off", made->node_id());
  } else if (chip != nullptr && chip->thunderbolt < kThunderboltWithRdma) {
    *made->mutable_rdma_unavailable() = MakeReason(
        reasons::kTb4Controller,
        absl::StrCat("its chip, ", absl::string_view(chip->name.data(), chip->name.size()),
                     ", has Thunderbolt ", chip->thunderbolt, ", and RDMA takes Thunderbolt 5"),
        made->node_id());
  }
}

v1::PlannerNode ReadNode(const YAML::Node& node, std::vector<MachineConfiguration>* unsold) {
  RefuseUnknownKeys(
      node, {"name",       "machine",       "chip",        "gpu_cores",     "cpu_cores",
             "memory_gib", "usable_gib",    "free_gib",    "reserved_gib",  "bandwidth_gb_s",
             "tflops",     "tenant",        "schedulable", "engine",        "disk_gb_s",
             "peak_watts", "idle_watts",    "has_model",   "uneven_tensor", "tensor_in_pipeline",
             "narrow_kv",  "whole_experts", "no_tensor",   "no_pipeline",   "backends",
             "rdma",       "portable"});
  if (!node["name"]) throw Fault{"it has no 'name'"};
  const std::string name = node["name"].as<std::string>();
  if (name.empty()) throw Fault{"its 'name' is empty"};
  v1::PlannerNode made;
  if (node["machine"]) {
    const auto machine = FindMachine(node["machine"].as<std::string>());
    if (!machine.ok()) throw Fault{std::string(machine.status().message())};
    if (!machine->is_sold) unsold->push_back(*machine);
    made = DescribeMachine(*machine, name);
    made.set_gpu_cores(static_cast<uint32_t>(Number(node, "gpu_cores", made.gpu_cores(), 100'000)));
  } else {
    made = BareNode(node, name);
  }
  made.set_cpu_cores(static_cast<uint32_t>(Number(node, "cpu_cores", 8, 100'000)));
  made.set_memory_usable_bytes(Memory(node, "usable_gib", made.memory_usable_bytes()));
  if (made.memory_usable_bytes() > made.memory_total_bytes()) {
    throw Fault{"'usable_gib' is more than the machine's memory"};
  }
  for (const char* key : {"chip", "memory_gib"}) {
    if (node["machine"] && node[key]) {
      throw Fault{absl::StrCat("'machine' says its ", key, " already")};
    }
  }
  made.set_memory_reserved_bytes(Memory(node, "reserved_gib", 0));
  // 0 would mean that it is not known.
  made.set_memory_available_bytes(
      std::max<uint64_t>(1, Memory(node, "free_gib", made.memory_usable_bytes())));
  made.set_memory_bandwidth(Number(node, "bandwidth_gb_s", 0, 1e6) * kGiga);
  made.set_compute_flops(Number(node, "tflops", 0, 1e6) * kGiga * 1000);
  made.set_disk_bytes_per_second(Number(node, "disk_gb_s", 0, 1e4) * kGiga);
  made.set_power_peak_watts(Number(node, "peak_watts", made.power_peak_watts(), 1e6));
  made.set_power_idle_watts(Number(node, "idle_watts", made.power_idle_watts(), 1e6));
  made.set_schedulable(Flag(node, "schedulable", true));
  made.set_has_model_files(Flag(node, "has_model", false));
  made.set_is_portable(Flag(node, "portable", made.is_portable()));
  // Said so, by its user.
  made.set_memory_limit_is_configured(static_cast<bool>(node["usable_gib"]));
  SayWhyNoRdma(node, &made);
  if (node["tenant"]) made.set_tenant(node["tenant"].as<std::string>());
  made.clear_engine_names();
  const std::string engine = node["engine"] ? node["engine"].as<std::string>() : "mlx";
  made.add_engine_names(engine);
  if (engine == "mlx") made.add_engine_names(kMlxLmEngine);  // which may be installed on it
  made.mutable_traits()->set_uneven_tensor(Flag(node, "uneven_tensor", true));
  made.mutable_traits()->set_tensor_in_pipeline(Flag(node, "tensor_in_pipeline", true));
  made.mutable_traits()->set_whole_experts(Flag(node, "whole_experts", true));
  made.mutable_traits()->set_narrow_kv(Flag(node, "narrow_kv", true));
  made.mutable_traits()->set_no_tensor(Flag(node, "no_tensor", false));
  made.mutable_traits()->set_no_pipeline(Flag(node, "no_pipeline", false));
  for (const YAML::Node& backend : List(node, "backends")) {
    const std::string name = backend.as<std::string>();
    const std::vector<std::string> names = BackendNames();
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw Fault{absl::StrCat("the backend '", name, "' is none of ", absl::StrJoin(names, ", "),
                               DidYouMean(name, names))};
    }
    made.mutable_traits()->add_backends(name);
  }
  return made;
}

// Where files are is looked at when any node says so. Of nodes that don't say, all have them,
// unless others are said to have them.
void NoteModelFiles(const YAML::Node& nodes, v1::PlanRequest* request) {
  bool any_said = false, any_has = false;
  for (const YAML::Node& node : nodes) {
    any_said = any_said || node["has_model"];
    any_has = any_has || Flag(node, "has_model", false);
  }
  request->set_files_may_be_fetched(!any_said);
  for (int i = 0; any_said && i < request->nodes_size(); ++i) {
    request->mutable_nodes(i)->set_has_model_files(
        Flag(nodes[static_cast<size_t>(i)], "has_model", !any_has));
  }
}

v1::LinkMedium MediumOf(const std::string& word) {
  if (word == "thunderbolt") return v1::LINK_MEDIUM_THUNDERBOLT;
  if (word == "ethernet" || word == "none") return v1::LINK_MEDIUM_ETHERNET;
  if (word == "wifi") return v1::LINK_MEDIUM_WIFI;
  if (word == "vpn") return v1::LINK_MEDIUM_VPN;
  if (word == "loopback") return v1::LINK_MEDIUM_LOOPBACK;
  throw Fault{absl::StrCat(
      "the medium '", word, "' is none of thunderbolt, ethernet, wifi, vpn, loopback, none",
      DidYouMean(word, {"thunderbolt", "ethernet", "wifi", "vpn", "loopback", "none"}))};
}

v1::PlannerLink ReadLink(const YAML::Node& node, const std::string& otherwise) {
  const std::string medium = node["medium"] ? node["medium"].as<std::string>() : otherwise;
  v1::PlannerLink link;
  link.set_medium(MediumOf(medium));
  link.set_round_trip_us(Number(node, "round_trip_us", 0, 1e7));
  link.set_bandwidth_bytes_per_second(Number(node, "gbit_s", 0, 1e5) * kGiga / kBitsPerByte);
  link.set_rdma_round_trip_us(Number(node, "rdma_round_trip_us", 0, 1e7));
  link.set_rdma_bandwidth_bytes_per_second(Number(node, "rdma_gbit_s", 0, 1e5) * kGiga /
                                           kBitsPerByte);
  if (medium != "none") link.add_backends(NameOf(Backend::kRing));
  return link;
}

void AddBothWays(v1::PlannerLink link, const std::string& a, const std::string& b,
                 v1::PlanRequest* request) {
  link.set_from_node_id(a);
  link.set_to_node_id(b);
  *request->add_links() = link;
  link.set_from_node_id(b);
  link.set_to_node_id(a);
  *request->add_links() = link;
}

const v1::PlannerNode& NodeNamed(const v1::PlanRequest& request, const std::string& name) {
  for (const v1::PlannerNode& node : request.nodes()) {
    if (node.node_id() == name) return node;
  }
  std::vector<std::string> known;
  for (const v1::PlannerNode& node : request.nodes()) known.push_back(node.node_id());
  throw Fault{absl::StrCat("there is no node '", name, "'", DidYouMean(name, known))};
}

void ReadLinks(const YAML::Node& links, v1::PlanRequest* request) {
  for (const YAML::Node& node : links) {
    RefuseUnknownKeys(node, {"between", "medium", "rdma", "round_trip_us", "gbit_s",
                             "rdma_round_trip_us", "rdma_gbit_s", "one_way"});
    if (!node["between"] || !node["between"].IsSequence() || node["between"].size() != 2) {
      throw Fault{
          absl::StrCat(PlaceText(node.Mark()), "a link needs 'between: [one node, another]'")};
    }
    const std::string a = node["between"][0].as<std::string>();
    const std::string b = node["between"][1].as<std::string>();
    const v1::PlannerNode &from = NodeNamed(*request, a), &to = NodeNamed(*request, b);
    const bool can = CanHaveRdma(from) && CanHaveRdma(to);
    if (a == b)
      throw Fault{absl::StrCat(PlaceText(node.Mark()), "a link from '", a, "' to itself")};
    v1::PlannerLink link = ReadLink(node, "thunderbolt");
    if (link.backends().empty() && Flag(node, "rdma", false)) {
      throw Fault{absl::StrCat(PlaceText(node.Mark()),
                               "'rdma' goes over some medium; 'none' keeps ", a, " and ", b,
                               " apart")};
    }
    const bool cable = link.medium() == v1::LINK_MEDIUM_THUNDERBOLT;
    if (cable && Flag(node, "rdma", false) && !can) {
      throw Fault{absl::StrCat("RDMA over Thunderbolt needs Thunderbolt 5 at both ends, and RDMA ",
                               "that is on; of ", a, " and ", b, " not both have it")};
    }
    if (Flag(node, "rdma", cable && can)) {
      link.add_backends(NameOf(cable ? Backend::kJaccl : Backend::kVerbs));
    } else if (node["rdma"]) {
      *link.mutable_rdma_unavailable() =
          MakeReason(reasons::kRdmaUnavailable, "the description says that this link has no RDMA");
    }
    if (Flag(node, "one_way", false)) {
      link.set_one_way(true);
      link.set_from_node_id(a);
      link.set_to_node_id(b);
      *request->add_links() = std::move(link);
      continue;
    }
    AddBothWays(link, a, b, request);
  }
}

// Between all pairs that no link joins.
void AddLan(const YAML::Node& lan, v1::PlanRequest* request) {
  RefuseUnknownKeys(lan, {"medium", "round_trip_us", "gbit_s"});
  *request->mutable_default_link() = ReadLink(lan, "ethernet");
}

CableGraph GraphOf(const std::string& word) {
  static constexpr CableGraph kGraphs[] = {CableGraph::kMesh, CableGraph::kRing, CableGraph::kChain,
                                           CableGraph::kStar, CableGraph::kNone};
  std::vector<std::string> names;
  for (const CableGraph graph : kGraphs) {
    if (word == NameOf(graph)) return graph;
    names.emplace_back(NameOf(graph));
  }
  throw Fault{absl::StrCat("links: '", word, "' is none of ", absl::StrJoin(names, ", "),
                           DidYouMean(word, names))};
}

LoadedModel ReadLoaded(const YAML::Node& node, v1::PlanRequest* request) {
  RefuseUnknownKeys(node, {"name", "gib"});
  if (!node["name"] || !node["gib"] || !node["gib"].IsMap()) {
    throw Fault{"a model that is 'loaded' needs 'name' and 'gib: {NODE: SIZE, …}'"};
  }
  LoadedModel loaded;
  loaded.name = node["name"].as<std::string>();
  std::set<std::string> seen;
  for (const auto& entry : node["gib"]) {
    const std::string name = entry.first.as<std::string>();
    NodeNamed(*request, name);
    if (!seen.insert(name).second) {
      throw Fault{absl::StrCat(PlaceText(entry.first.Mark()), "'", name, "' stands there twice")};
    }
    const uint64_t bytes = Memory(node["gib"], name.c_str(), 0);
    loaded.bytes[name] = bytes;
    for (v1::PlannerNode& holder : *request->mutable_nodes()) {
      if (holder.node_id() != name) continue;
      holder.set_memory_reserved_bytes(SaturatingAdd(holder.memory_reserved_bytes(), bytes));
    }
  }
  return loaded;
}

PublishedFigures ReadPublished(const YAML::Node& node) {
  constexpr double kMoneyMax = 1e12;
  RefuseUnknownKeys(node, {"source", "currency", "price", "users", "peak_watts", "idle_watts",
                           "models", "speeds", "notes"});
  PublishedFigures figures;
  figures.source = node["source"] ? node["source"].as<std::string>() : "";
  figures.currency = node["currency"] ? node["currency"].as<std::string>() : "";
  figures.models = node["models"] ? node["models"].as<std::string>() : "";
  figures.price = Number(node, "price", 0, kMoneyMax);
  figures.peak_watts = Number(node, "peak_watts", 0, 1e9);
  figures.idle_watts = Number(node, "idle_watts", 0, 1e9);
  if (const YAML::Node users = node["users"]; users) {
    if (users.size() != 2) throw Fault{"'users' are two numbers: [the fewest, the most]"};
    figures.users_low = users[0].as<uint32_t>();
    figures.users_high = users[1].as<uint32_t>();
    if (figures.users_low == 0 || figures.users_high < figures.users_low) {
      throw Fault{"'users' are two numbers: [the fewest, the most]"};
    }
  }
  for (const YAML::Node& speed : List(node, "speeds")) {
    RefuseUnknownKeys(speed, {"model", "tokens_per_second"});
    if (!speed["model"]) throw Fault{"one of the 'speeds' names no 'model'"};
    figures.speeds.push_back(
        {speed["model"].as<std::string>(), Number(speed, "tokens_per_second", 0, 1e6)});
  }
  if (node["notes"]) figures.notes = node["notes"].as<std::vector<std::string>>();
  return figures;
}

DescribedCluster ReadCluster(const YAML::Node& root) {
  constexpr size_t kNodesMax = 8192;
  DescribedCluster cluster;
  v1::PlanRequest& request = cluster.request;
  if (!root.IsMap()) {
    throw Fault{"it does not begin with 'nodes:'; deploy/catalogue/clusters has examples"};
  }
  RefuseUnknownKeys(root,
                    {"nodes", "links", "lan", "mesh_ranks_max", "title", "published", "loaded"});
  const YAML::Node nodes = List(root, "nodes");
  if (nodes.size() == 0) throw Fault{"there are no 'nodes'"};
  if (nodes.size() > kNodesMax) throw Fault{"there are more than 8192 nodes"};
  std::set<std::string> names;
  size_t number = 0;
  for (const YAML::Node& node : nodes) {
    ++number;
    try {
      *request.add_nodes() = ReadNode(node, &cluster.unsold);
    } catch (const Fault& fault) {
      throw Fault{absl::StrCat("node ", number, ": ", fault.what)};
    }
    const std::string& name = request.nodes(static_cast<int>(number) - 1).node_id();
    if (!names.insert(name).second) throw Fault{absl::StrCat("two nodes are called '", name, "'")};
  }
  const bool pairs = root["links"] && root["links"].IsScalar();
  if (pairs && request.nodes_size() > kCabledNodesMax) {
    throw Fault{absl::StrCat("cables by one word are for at most ", kCabledNodesMax,
                             " nodes; name links one by one, or all by 'lan'")};
  }
  if (root["links"] && root["links"].IsScalar()) {
    AddCables(GraphOf(root["links"].as<std::string>()), &request);
  } else if (root["links"]) {
    ReadLinks(List(root, "links"), &request);
  }
  if (root["lan"]) AddLan(root["lan"], &request);
  request.set_mesh_ranks_max(
      static_cast<uint32_t>(Number(root, "mesh_ranks_max", kMeshRanksMax, kMeshRanksPossible)));
  NoteModelFiles(nodes, &request);
  for (const YAML::Node& loaded : List(root, "loaded")) {
    cluster.loaded.push_back(ReadLoaded(loaded, &request));
  }
  if (root["title"]) cluster.title = root["title"].as<std::string>();
  if (root["published"]) {
    try {
      cluster.published = ReadPublished(root["published"]);
    } catch (const Fault& fault) {
      throw Fault{absl::StrCat("published: ", fault.what)};
    }
  }
  return cluster;
}

}  // namespace

bool CanHaveRdma(const v1::PlannerNode& node) {
  return HasThunderbolt5(node) && node.rdma_unavailable().code().empty();
}

bool HasThunderbolt5(const v1::PlannerNode& node) {
  const Chip* chip = FindChip(node.chip());
  return chip != nullptr && chip->thunderbolt >= 5;
}

void AddCables(CableGraph graph, const std::vector<int>& nodes, v1::PlanRequest* request) {
  const int count = static_cast<int>(nodes.size());
  const auto join = [&](int i, int j) {
    const v1::PlannerNode &from = request->nodes(nodes[i]), &to = request->nodes(nodes[j]);
    v1::PlannerLink link;
    link.set_medium(v1::LINK_MEDIUM_THUNDERBOLT);
    link.add_backends(NameOf(Backend::kRing));
    if (CanHaveRdma(from) && CanHaveRdma(to)) link.add_backends(NameOf(Backend::kJaccl));
    AddBothWays(link, from.node_id(), to.node_id(), request);
  };
  for (int i = 0; i < count; ++i) {
    for (int j = i + 1; j < count; ++j) {
      const bool next = j == i + 1;
      const bool closes = graph == CableGraph::kRing && i == 0 && j + 1 == count && count > 2;
      const bool chained = graph == CableGraph::kRing || graph == CableGraph::kChain;
      if (graph == CableGraph::kMesh || (graph == CableGraph::kStar && i == 0) ||
          (chained && next) || closes) {
        join(i, j);
      }
    }
  }
}

void AddCables(CableGraph graph, v1::PlanRequest* request) {
  std::vector<int> all(request->nodes_size());
  std::iota(all.begin(), all.end(), 0);
  AddCables(graph, all, request);
}

v1::PlanRequest ClusterOf(const std::vector<MachineConfiguration>& machines, BeyondFour beyond) {
  v1::PlanRequest request;
  std::map<std::string, int> used;
  std::vector<int> able;
  for (const MachineConfiguration& machine : machines) {
    const std::string base(machine.machine->name);
    if (machine.machine->rdma_ports > 0) able.push_back(request.nodes_size());
    v1::PlannerNode& node = *request.add_nodes();
    node = DescribeMachine(machine, absl::StrCat(base, "-", ++used[base]));
    node.set_is_portable(false);  // bought to serve
  }
  request.set_files_may_be_fetched(true);
  if (able.size() > kMeshRanksMax && beyond == BeyondFour::kRing) {
    AddCables(CableGraph::kRing, able, &request);
    return request;
  }
  for (size_t i = 0; i < able.size(); i += kMeshRanksMax) {
    const size_t end = std::min<size_t>(able.size(), i + kMeshRanksMax);
    AddCables(CableGraph::kMesh, {able.begin() + i, able.begin() + end}, &request);
  }
  return request;
}

absl::StatusOr<DescribedCluster> ReadClusterFile(const std::string& yaml) {
  try {
    return ReadCluster(YAML::Load(yaml));
  } catch (const Fault& fault) {
    return absl::InvalidArgumentError(absl::StrCat("the cluster's description: ", fault.what));
  } catch (const YAML::Exception& error) {
    const bool kind = dynamic_cast<const YAML::BadConversion*>(&error) != nullptr;
    return absl::InvalidArgumentError(
        absl::StrCat("the cluster's description: ", PlaceText(error.mark),
                     kind ? "a value of the wrong kind: text, or a number" : error.msg));
  }
}

}  // namespace macrame::planner
