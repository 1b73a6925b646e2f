#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"
#include "transport/links/link_ends.h"
#include "transport/links/mac_bridges.h"

namespace macrame::transport {
namespace {

// The prober's reports are of the last 24 hours as well; a node that is late tells older ones.
constexpr uint64_t kPanicsWarnedMs = uint64_t{24} * 3600 * 1000;
// A person who seats a plug again moves it once or twice.
constexpr uint32_t kDropsToWarn = 3;
// A machine has fewer sockets: what is beyond is left out.
constexpr size_t kSocketsNamedMax = 8;
// Shorter is what the load of a rank that just ended looks like, as it is sampled every 10 s.
constexpr uint32_t kGpuWedgedSecondsMin = 30;

bool IsThunderboltInterface(const v1::LinkFacts& facts, const std::string& name) {
  const v1::LinkInterface* interface = FindInterface(facts, name);
  return interface != nullptr && interface->kind() == v1::INTERFACE_KIND_THUNDERBOLT;
}

const v1::NetworkBridge* SharingBridge(const v1::LinkFacts& facts) {
  for (const v1::NetworkBridge& bridge : facts.bridges()) {
    if (IsOfInternetSharing(bridge)) return &bridge;
  }
  return nullptr;
}

class Warnings {
 public:
  explicit Warnings(const v1::LinkFacts& facts) : facts_(facts) {}

  v1::Reason& Add(std::string_view code, const std::string& what, std::string evidence = "") {
    v1::Reason reason =
        MakeReason(code, absl::StrCat(facts_.hostname(), ": ", what), facts_.node_id());
    reason.set_evidence(std::move(evidence));
    return found_.emplace_back(std::move(reason));
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
    out.Add(reasons::kMaySleep, absl::StrCat("goes to sleep after ", facts.sleep_minutes(),
                                             " min where no rank keeps it awake"));
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

// Agents leave out what their own ranks hold (agentd/cores/held_domains.h). One group more may be
// another program's, or that of an agent which counts them still; what is beyond was leaked.
void WarnOfLeaks(const v1::LinkFacts& facts, Warnings& out) {
  if (facts.protection_domains() <= DomainsOfOneGroup(facts)) return;
  v1::Reason& reason = out.Add(
      reasons::kResourceExhausted,
      absl::StrCat("the kernel holds ", facts.protection_domains(),
                   " RDMA protection domains that no rank of this cluster uses, of 11 that each "
                   "device has: another program's, or leaked by one that was killed"));
  reason.set_remedy(
      "if another program uses RDMA there (mlx.launch, exo), end it in order, with SIGTERM; if "
      "none does, restart this machine once its ranks have ended ('clusterctl drain NODE')");
}

// One warning for all sockets: of each code a node has one finding.
void WarnOfFlaps(const v1::LinkFacts& facts, Warnings& out) {
  std::vector<std::string> links, evidence;
  for (const v1::ThunderboltPort& port : facts.ports()) {
    if (port.drops_last_hour() < kDropsToWarn || links.size() == kSocketsNamedMax) continue;
    const std::string socket = absl::StrCat(
        "Thunderbolt socket ", port.socket() == 0 ? "?" : absl::StrCat(port.socket()),
        port.interface_name().empty() ? "" : absl::StrCat(" (", port.interface_name(), ")"));
    links.push_back(absl::StrCat(links.empty() ? "the link at " : "that at ", socket,
                                 links.empty() ? " went and came " : " ", port.drops_last_hour(),
                                 " times"));
    evidence.push_back(absl::StrCat(
        socket, ": ", port.drops_last_hour(), " drops",
        port.speed_text().empty() ? "" : absl::StrCat(", ", port.speed_text()),
        port.peers().empty() ? "" : absl::StrCat(", to ", port.peers(0).device_name())));
  }
  if (links.empty()) return;
  out.Add(reasons::kLinkFlaps, absl::StrCat(absl::StrJoin(links, ", "), " within the last hour"),
          absl::StrJoin(evidence, "; "));
}

std::string AgoText(uint64_t ms) {
  constexpr uint64_t kMinute = 60'000, kHour = 60 * kMinute;
  if (ms < 2 * kHour) return absl::StrCat(" ", ms / kMinute, " min ago");
  return absl::StrCat(" ", ms / kHour, " h ago");
}

// One warning for all of the last 24 hours, with what the kernel said last.
void WarnOfPanics(const v1::LinkFacts& facts, uint64_t now_unix_ms, Warnings& out) {
  const v1::PanicReport* last = nullptr;
  int count = 0;
  for (const v1::PanicReport& panic : facts.panics()) {
    if (panic.unix_ms() + kPanicsWarnedMs < now_unix_ms) continue;
    ++count;
    if (last == nullptr || panic.unix_ms() >= last->unix_ms()) last = &panic;
  }
  if (last == nullptr) return;
  const uint64_t age = now_unix_ms - std::min(now_unix_ms, last->unix_ms());
  v1::Reason& reason =
      out.Add(reasons::kNodeCrashed,
              absl::StrCat("its kernel panicked", now_unix_ms == 0 ? "" : AgoText(age),
                           count == 1 ? "" : absl::StrCat(", ", count, " times within 24 h"),
                           last->text().empty() ? "" : absl::StrCat(": ", last->text())),
              last->file());
  reason.set_remedy(
      "read that report on the machine and install the newest macOS; two panics within an hour "
      "keep it off RDMA, or cordon it where RDMA was not in use");
}

// A command that was cut off with its rank, or another program: nothing tells one from the other.
void WarnOfGpu(const v1::LinkFacts& facts, Warnings& out) {
  const uint32_t seconds = facts.gpu_busy_alone_seconds();
  if (seconds < kGpuWedgedSecondsMin) return;
  v1::Reason& reason = out.Add(
      reasons::kGpuWedged,
      absl::StrCat("its GPU has been busy for ",
                   seconds < 120 ? absl::StrCat(seconds, " s") : absl::StrCat(seconds / 60, " min"),
                   " or longer, although no rank of this cluster runs there any more: a command "
                   "that was cut off, or another program; the next rank there may hang"));
  reason.set_remedy(
      absl::StrCat("end the other program if one computes there",
                   facts.is_mac() == v1::FACT_YES
                       ? " (Activity Monitor: Window, GPU History; the column % GPU names it)"
                       : "",
                   "; else restart this machine"));
}

}  // namespace

int DomainsOfOneGroup(const v1::LinkFacts& facts) {
  return 2 *
         static_cast<int>(std::count_if(facts.rdma_devices().begin(), facts.rdma_devices().end(),
                                        [](const v1::RdmaDevice& device) {
                                          return device.port_state() == v1::RDMA_PORT_STATE_ACTIVE;
                                        }));
}

std::vector<v1::Reason> NodeWarnings(const v1::LinkFacts& facts, uint64_t now_unix_ms) {
  Warnings out(facts);
  WarnOfSharing(facts, out);
  WarnOfFabric(facts, out);
  WarnOfPower(facts, out);
  WarnOfLeaks(facts, out);
  WarnOfFlaps(facts, out);
  WarnOfGpu(facts, out);
  WarnOfPanics(facts, now_unix_ms, out);
  if (facts.local_network_denied() == v1::FACT_YES) {
    out.Add(reasons::kLocalNetworkPrivacy, "macOS refused this program the local network");
  }
  return out.Take();
}

}  // namespace macrame::transport
