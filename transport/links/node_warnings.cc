#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"
#include "transport/links/link_ends.h"

namespace macrame::transport {
namespace {

// Protection domains that one link of a running job holds at most; more while nothing runs are
// leaks.
constexpr int kProtectionDomainsSuspect = 1;

bool IsThunderboltInterface(const v1::LinkFacts& facts, const std::string& name) {
  const v1::LinkInterface* interface = FindInterface(facts, name);
  return interface != nullptr && interface->kind() == v1::INTERFACE_KIND_THUNDERBOLT;
}

// bridge100 with members other than a virtual machine's is what Internet Sharing makes.
const v1::NetworkBridge* SharingBridge(const v1::LinkFacts& facts) {
  for (const v1::NetworkBridge& bridge : facts.bridges()) {
    if (!absl::StartsWith(bridge.name(), "bridge1")) continue;
    for (const std::string& member : bridge.members()) {
      if (!absl::StartsWith(member, "vmenet")) return &bridge;
    }
  }
  return nullptr;
}

class Warnings {
 public:
  explicit Warnings(const v1::LinkFacts& facts) : facts_(facts) {}

  void Add(std::string_view code, const std::string& what, std::string evidence = "") {
    v1::Reason reason =
        MakeReason(code, absl::StrCat(facts_.hostname(), ": ", what), facts_.node_id());
    reason.set_evidence(std::move(evidence));
    found_.push_back(std::move(reason));
  }
  std::vector<v1::Reason> Take() { return std::move(found_); }

 private:
  const v1::LinkFacts& facts_;
  std::vector<v1::Reason> found_;
};

void WarnOfSharing(const v1::LinkFacts& facts, Warnings& out) {
  const v1::NetworkBridge* bridge = SharingBridge(facts);
  if (facts.internet_sharing() != v1::FACT_YES && bridge == nullptr) return;
  const std::string over =
      facts.internet_sharing_interfaces_size() == 0
          ? ""
          : absl::StrCat(" over ", absl::StrJoin(facts.internet_sharing_interfaces(), ", "));
  out.Add(reasons::kInternetSharing,
          bridge == nullptr ? absl::StrCat("Internet Sharing is on", over)
                            : absl::StrCat("Internet Sharing", over, " made ", bridge->name(),
                                           " of ", absl::StrJoin(bridge->members(), ", ")),
          bridge == nullptr
              ? ""
              : absl::StrCat(bridge->name(), " members: ", absl::StrJoin(bridge->members(), " ")));
}

void WarnOfFabric(const v1::LinkFacts& facts, Warnings& out) {
  for (const v1::NetworkRoute& route : facts.routes()) {
    if (route.destination() != "default") continue;
    if (!IsThunderboltInterface(facts, route.interface_name())) continue;
    out.Add(reasons::kFabricNotSeparate,
            absl::StrCat("the default route leaves by ", route.interface_name(),
                         ", which is a Thunderbolt interface"),
            absl::StrCat("default ", route.gateway(), " ", route.interface_name()));
  }
}

void WarnOfPower(const v1::LinkFacts& facts, Warnings& out) {
  if (facts.is_mac() == v1::FACT_YES && facts.sleep_minutes() > 0) {
    out.Add(reasons::kMaySleep,
            absl::StrCat("goes to sleep after ", facts.sleep_minutes(), " min"));
  }
  if (facts.low_power_mode() == v1::FACT_YES)
    out.Add(reasons::kLowPowerMode, "Low Power Mode is on");
  if (facts.thermal_state() == v1::THERMAL_STATE_THROTTLED)
    out.Add(reasons::kThermal, "throttled by heat");
  if (facts.memory_pressure() == v1::MEMORY_PRESSURE_CRITICAL ||
      facts.memory_pressure() == v1::MEMORY_PRESSURE_WARNING) {
    out.Add(reasons::kMemoryPressure, "the system reports memory pressure");
  }
}

}  // namespace

std::vector<v1::Reason> NodeWarnings(const v1::LinkFacts& facts) {
  Warnings out(facts);
  WarnOfSharing(facts, out);
  WarnOfFabric(facts, out);
  WarnOfPower(facts, out);
  if (facts.protection_domains() >= kProtectionDomainsSuspect) {
    out.Add(reasons::kResourceExhausted,
            absl::StrCat("the kernel holds ", facts.protection_domains(),
                         " RDMA protection domains of 11; when no RDMA job runs, killed ones "
                         "leaked them"));
  }
  if (facts.local_network_denied() == v1::FACT_YES) {
    out.Add(reasons::kLocalNetworkPrivacy, "macOS refused this program the local network");
  }
  return out.Take();
}

}  // namespace macrame::transport
