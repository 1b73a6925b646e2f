#include "transport/links/finding_texts.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace macrame::transport {
namespace {

constexpr std::array<std::string_view, 6> kTriggers = {
    "the build of macOS changes on one of the nodes",
    "an RDMA device (rdma_en...) appears where there was none",
    "the kernel's refusal is gone from the log after a restart",
    "a machine is replaced by another, or MLX by another version",
    "a newer knowledge file says that this machine's controller is supported",
    "somebody says 'clusterctl links recheck'"};

std::string RingText(const std::string& over) {
  if (over == "thunderbolt") return "TCP over the Thunderbolt cables";
  if (over == "wifi") return "TCP over Wi-Fi";
  return "TCP over the local network";
}

}  // namespace

FindingText TextOf(std::string_view code) {
  if (code == "TB4_CONTROLLER") {
    return {
        "RDMA does not come up on this Mac, though it may be enabled and its kernel extensions "
        "loaded; jaccl fails at its first steps or stalls",
        "its Thunderbolt controller is older than Thunderbolt 5, and macOS refuses RDMA on it; "
        "the blocker is below any orchestrator",
        {"nothing to do: the ring serves instead; going to Recovery again changes nothing"}};
  }
  if (code == "RDMA_DISABLED_LOCAL") {
    return {"no RDMA device is listed",
            "RDMA is off, which is how macOS ships",
            {"shut the Mac down fully",
             "hold its power button until 'Options' shows; Options, Continue",
             "menu Utilities, Terminal: rdma_ctl enable", "restart; rdma_ctl status says enabled"}};
  }
  if (code == "INTERNET_SHARING") {
    return {"bridge100 is there, and comes back when it is removed",
            "Internet Sharing is on and makes the bridge anew; its addresses are never used for "
            "ranks",
            {"System Settings, General, Sharing: Internet Sharing off",
             "then see that bridge100 is gone: ifconfig bridge100",
             "look again after 60 seconds and after a restart"}};
  }
  if (code == "LINK_40G") {
    return {"the link is up and RDMA is not",
            "it runs at 40 Gb/s: a Thunderbolt 4 cable, a dock or a badly seated plug",
            {"a Thunderbolt 5 cable, straight from Mac to Mac",
             "system_profiler SPThunderboltDataType: the speed must be 80 Gb/s"}};
  }
  if (code == "NO_IPV4_GID" || code == "NO_IPV4") {
    return {"queue pairs fail with errno 22 or 96", "", {}};
  }
  return {};
}

std::string SourceOf(std::string_view code) {
  if (code == "TB4_CONTROLLER") return "ioreg or kernel log";
  if (code == "RDMA_DISABLED_LOCAL") return "rdma_ctl status";
  if (code == "LINK_40G" || code == "ASYMMETRIC_LINK") return "system_profiler";
  if (code == "INTERNET_SHARING") return "ifconfig";
  if (code == "ROUTE_WRONG_IF" || code == "FABRIC_NOT_SEPARATE") return "netstat -rn";
  if (code == "CONFLICTING_FACTS") return "kernel log";
  return "as printed";
}

std::span<const std::string_view> RetryTriggers() { return kTriggers; }

std::string ConclusionOf(const v1::GroupVerdict& group, const v1::Reason* cause, size_t nodes) {
  const std::string& verdict = group.verdict();
  if (nodes == 1) return "One node: there are no links to judge.";
  const std::string why =
      cause == nullptr ? ""
                       : absl::StrCat(" The cause: ", cause->code(), ", ", cause->message(), ".");
  if (verdict == "jaccl-mesh") return "Every pair of nodes has a link that RDMA works on.";
  if (verdict == "jaccl-ring") {
    return "RDMA works round a ring of these nodes, not between all of them.";
  }
  if (verdict == "verbs") return "RDMA works between these nodes through verbs.";
  if (verdict == "ring-only") {
    if (cause == nullptr) {
      return absl::StrCat("These nodes serve together over ", RingText(group.ring_over()),
                          "; they have no hardware for RDMA, and nothing is wrong.");
    }
    return absl::StrCat("These nodes serve together over ", RingText(group.ring_over()),
                        ", not over RDMA.", why);
  }
  return absl::StrCat("These nodes can't serve together.", why);
}

}  // namespace macrame::transport
