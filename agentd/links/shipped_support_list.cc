#include "agentd/links/support_list.h"
#include "proto/check.h"

namespace macrame::agentd {
namespace {

// As known on the day of its date, which is raised with each change. A newer file in the state
// folder, or the one that support_list names, takes its place (docs/macs.md).
constexpr char kShipped[] = R"(date: 2026-11-28
entries:
- subject: rdma
  chips:
  - Apple M3 Ultra
  - Apple M4 Pro
  - Apple M4 Max
  - Apple M5 Pro
  - Apple M5 Max
  - Apple M5 Ultra
  os_version_min: "26.2"
  mlx_version_min: "0.30.6"
  supported: true
  source: "Apple's technical note TN3205: RDMA over Thunderbolt 5, macOS 26.2 and later"
)";

}  // namespace

const v1::SupportList& ShippedSupportList() {
  static const v1::SupportList list = [] {
    auto parsed = ParseSupportList(kShipped, "the shipped support list");
    MACRAME_CHECK(parsed.ok()) << parsed.status().message();
    return *std::move(parsed);
  }();
  return list;
}

}  // namespace macrame::agentd
