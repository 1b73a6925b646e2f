#include "transport/links/mlx_settings.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/backends.h"
#include "proto/reasons.h"

namespace macrame::transport {
namespace {

// Without it a Mac's GPU and the wire wait ten times as long for each other, at every collective.
constexpr char kFastSynch[] = "MLX_METAL_FAST_SYNCH";

using Json = nlohmann::ordered_json;

Json CellJson(const v1::DeviceCell& cell) {
  if (cell.devices().empty()) return nullptr;
  if (cell.devices_size() == 1) return cell.devices(0);
  return std::vector<std::string>(cell.devices().begin(), cell.devices().end());
}

// The verdict's own word for a backend of mlx.launch.
const v1::BackendChoice* ChoiceFor(const v1::GroupVerdict& group, MlxBackend backend) {
  const Topology topology = backend == MlxBackend::kJacclRing ? Topology::kRing : Topology::kMesh;
  for (const v1::BackendChoice& choice : group.choices()) {
    const Backend own = BackendNamed(choice.backend());
    const bool is_jaccl = own == Backend::kJaccl && TopologyNamed(choice.topology()) == topology;
    if (IsJaccl(backend) ? is_jaccl : own == Backend::kRing) return &choice;
  }
  return nullptr;
}

// The backend of that name, when the group can use it.
absl::StatusOr<MlxBackend> UsableBackend(const v1::GroupVerdict& group, const std::string& name) {
  const std::vector<std::string> names = MlxBackendNames();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                        absl::StrCat("no backend '", name.substr(0, 32),
                                     "'; there are: ", absl::StrJoin(names, ", ")));
  }
  const MlxBackend backend = *MlxBackendNamed(name);
  if (VerdictNamed(group.verdict()) == Verdict::kSingle) return backend;
  const v1::BackendChoice* choice = ChoiceFor(group, backend);
  if (choice != nullptr && choice->usable()) return backend;
  std::vector<std::string> why;
  if (choice != nullptr) {
    for (const v1::Reason& reason : choice->reasons()) {
      why.push_back(absl::StrCat(reason.code(), " (", reason.message(), ")"));
    }
  }
  if (why.empty()) why.push_back("these nodes do not have it");
  return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kTransportUnavailable,
                      absl::StrCat(name, " can't be used: ", absl::StrJoin(why, "; ")));
}

std::vector<std::string> AddressesOf(const v1::GroupVerdict& group, MlxBackend backend, int rank) {
  if (backend == MlxBackend::kRing) {
    if (rank >= group.ring_addresses_size()) return {};
    const auto& ips = group.ring_addresses(rank).ips();
    return {ips.begin(), ips.end()};
  }
  if (rank != 0 || group.rendezvous_ip().empty()) return {};
  return {group.rendezvous_ip()};
}

// Each rank of a ring, else rank 0, has an address; `names` by rank.
absl::Status CheckAddresses(const v1::GroupVerdict& group, MlxBackend backend,
                            std::span<const std::string> names) {
  const int count = group.node_ids_size();
  const int needed = count < 2 ? 0 : backend == MlxBackend::kRing ? count : 1;
  for (int rank = 0; rank < needed; ++rank) {
    if (!AddressesOf(group, backend, rank).empty()) continue;
    return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kCoordinator,
                        absl::StrCat("no address of ", names[static_cast<size_t>(rank)],
                                     " is known that all others reach"),
                        group.node_ids(rank));
  }
  return absl::OkStatus();
}

}  // namespace

std::string RendezvousIpOf(const v1::GroupVerdict& group, int rank) {
  return rank < group.rendezvous_ips_size() ? group.rendezvous_ips(rank) : group.rendezvous_ip();
}

std::string DeviceMatrixJson(const v1::GroupVerdict& group) {
  Json matrix = Json::array();
  for (const v1::DeviceRow& row : group.device_matrix()) {
    Json cells = Json::array();
    for (const v1::DeviceCell& cell : row.cells()) cells.push_back(CellJson(cell));
    matrix.push_back(std::move(cells));
  }
  return matrix.dump();
}

absl::StatusOr<std::string> MlxHostfile(const v1::GroupVerdict& group, const std::string& name,
                                        const std::vector<std::string>& ssh_names,
                                        bool fast_synch) {
  const absl::StatusOr<MlxBackend> usable = UsableBackend(group, name);
  if (!usable.ok()) return usable.status();
  const MlxBackend backend = *usable;
  const int count = group.node_ids_size();
  if (static_cast<int>(ssh_names.size()) != count) {
    return absl::InvalidArgumentError(
        absl::StrCat(ssh_names.size(), " names for ", count, " ranks"));
  }
  const absl::Status reached = CheckAddresses(group, backend, ssh_names);
  if (!reached.ok()) return reached;
  Json hosts = Json::array();
  for (int rank = 0; rank < count; ++rank) {
    const std::vector<std::string> ips = AddressesOf(group, backend, rank);
    Json row = Json::array();
    if (IsJaccl(backend) && rank < group.device_matrix_size()) {
      for (const v1::DeviceCell& cell : group.device_matrix(rank).cells()) {
        row.push_back(CellJson(cell));
      }
    }
    Json host;
    host["ssh"] = ssh_names[static_cast<size_t>(rank)];
    host["ips"] = ips;
    host["rdma"] = std::move(row);
    hosts.push_back(std::move(host));
  }
  // A host a line, so that a fault can be pointed at.
  std::string text =
      absl::StrCat("{\n  \"backend\": \"", name, "\",\n  \"envs\": [",
                   IsJaccl(backend) && fast_synch ? absl::StrCat("\"", kFastSynch, "=1\"") : "",
                   "],\n  \"hosts\": [");
  for (int rank = 0; rank < count; ++rank) {
    absl::StrAppend(&text, rank == 0 ? "\n    " : ",\n    ",
                    hosts[static_cast<size_t>(rank)].dump());
  }
  return absl::StrCat(text, "\n  ]\n}\n");
}

absl::StatusOr<MlxEnvironment> MlxEnvironmentOf(const v1::GroupVerdict& group,
                                                const std::string& name, int rank, int port,
                                                bool fast_synch) {
  const absl::StatusOr<MlxBackend> usable = UsableBackend(group, name);
  if (!usable.ok()) return usable.status();
  const MlxBackend backend = *usable;
  if (rank < 0 || rank >= group.node_ids_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no rank ", rank, " among ", group.node_ids_size()));
  }
  const std::string coordinator = RendezvousIpOf(group, rank);
  if (backend == MlxBackend::kRing || coordinator.empty()) {
    const std::vector<std::string> ids(group.node_ids().begin(), group.node_ids().end());
    const absl::Status reached = CheckAddresses(group, backend, ids);
    if (!reached.ok()) return reached;
  }
  MlxEnvironment environment;
  environment.settings.emplace_back("MLX_RANK", std::to_string(rank));
  if (backend == MlxBackend::kRing) {
    Json hosts = Json::array();
    for (int i = 0; i < group.node_ids_size(); ++i) {
      Json addresses = Json::array();
      // mlx.launch counts ports on from host to host; so does whoever reads this.
      for (const std::string& ip : AddressesOf(group, backend, i)) {
        addresses.push_back(absl::StrCat(ip, ":", port++));
      }
      hosts.push_back(std::move(addresses));
    }
    environment.files.emplace_back("MLX_HOSTFILE", hosts.dump());
    return environment;
  }
  environment.settings.emplace_back("MLX_JACCL_COORDINATOR", absl::StrCat(coordinator, ":", port));
  if (fast_synch) environment.settings.emplace_back(kFastSynch, "1");
  if (backend == MlxBackend::kJacclRing) environment.settings.emplace_back("MLX_JACCL_RING", "1");
  environment.files.emplace_back("MLX_IBV_DEVICES", DeviceMatrixJson(group));
  return environment;
}

}  // namespace macrame::transport
