#include "transport/links/finding_texts.h"

#include <array>

#include "proto/reason_codes.h"

namespace macrame::transport {
namespace {

constexpr std::array<std::string_view, 6> kTriggers = {
    "the build of macOS changes on one of the nodes",
    "an RDMA device (rdma_en...) appears where there was none",
    "the kernel's refusal is gone from the log after a restart",
    "a machine is replaced by another, or MLX by another version",
    "a newer support list says that this machine's controller is supported",
    "somebody says 'clusterctl links recheck'"};

}  // namespace

FindingText TextOf(std::string_view code) {
  if (code == reasons::kTb4Controller) {
    return {
        "RDMA does not come up on this Mac, though it may be enabled and its kernel extensions "
        "loaded; jaccl fails at its first steps or stalls",
        "its Thunderbolt controller is older than Thunderbolt 5, and macOS refuses RDMA on it; "
        "the blocker is below any orchestrator",
        {"nothing to do: the ring serves instead; going to Recovery again changes nothing"}};
  }
  if (code == reasons::kRdmaDisabledLocal) {
    return {"no RDMA device is listed",
            "RDMA is off, which is how macOS ships",
            {"shut the Mac down fully",
             "hold its power button until 'Options' shows; Options, Continue",
             "menu Utilities, Terminal: rdma_ctl enable", "restart; rdma_ctl status says enabled"}};
  }
  if (code == reasons::kOsFrameMismatch) {
    return {
        "jaccl may start and pass small messages, and then stall or fail at the first one of "
        "8 KiB or more",
        "MLX cuts messages into frames by the macOS that it runs on: of 4 KiB before 26.3, of up "
        "to 512 KiB from 26.3 on; both ends must do the same",
        {"System Settings, General, Software Update: the same macOS, 26.3 or later, on all of "
         "these Macs",
         "sw_vers on each of them says the same ProductVersion"}};
  }
  if (code == reasons::kInternetSharing) {
    return {"bridge100 is there, and comes back when it is removed",
            "Internet Sharing is on and makes the bridge anew; its addresses are never used for "
            "ranks",
            {"System Settings, General, Sharing: Internet Sharing off",
             "then see that bridge100 is gone: ifconfig bridge100",
             "look again after 60 seconds and after a restart"}};
  }
  if (code == reasons::kLink40g) {
    return {
        "the link is up and RDMA is not",
        "it runs at 40 Gb/s: a Thunderbolt 4 cable, a dock or a badly seated plug",
        {"see that both Macs have Thunderbolt 5: system_profiler SPThunderboltDataType says 'Up "
         "to 120 Gb/s' of an idle socket; Thunderbolt 4 never runs RDMA",
         "a Thunderbolt 5 cable, straight from Mac to Mac",
         "system_profiler SPThunderboltDataType: the speed must be 80 Gb/s"}};
  }
  if (code == reasons::kNoIpv4Gid || code == reasons::kNoIpv4) {
    return {"queue pairs fail with errno 22 or 96", "", {}};
  }
  return {};
}

std::string SourceOf(std::string_view code) {
  if (code == reasons::kTb4Controller) return "ioreg or kernel log";
  if (code == reasons::kRdmaDisabledLocal) return "rdma_ctl status";
  if (code == reasons::kOsFrameMismatch) return "sw_vers";
  if (code == reasons::kLink40g || code == reasons::kAsymmetricLink) return "system_profiler";
  if (code == reasons::kLinkFlaps) return "probes of the last hour";
  if (code == reasons::kFirmwareOld) return "system_profiler SPHardwareDataType";
  if (code == reasons::kNodeCrashed) return "panic report";
  if (code == reasons::kInternetSharing) return "ifconfig";
  if (code == reasons::kRouteWrongIf || code == reasons::kFabricNotSeparate) return "netstat -rn";
  if (code == reasons::kConflictingFacts) return "kernel log";
  return "as printed";
}

std::span<const std::string_view> RetryTriggers() { return kTriggers; }

}  // namespace macrame::transport
