// Which device leads to which rank.

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "transport/links/judge.h"

namespace macrame::transport {
namespace {

bool AreNeighbours(size_t a, size_t b, size_t count) {
  return (a + 1) % count == b || (b + 1) % count == a;
}

void KeepFirst(int count, v1::DeviceCell* cell) {
  if (cell->devices_size() <= count) return;
  cell->mutable_devices()->DeleteSubrange(count, cell->devices_size() - count);
}

// The least number of devices between two neighbours, four at most; 0: two neighbours have none.
int RingCables(const std::vector<v1::DeviceRow>& rows) {
  int least = kRingCablesMax;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    const int next = static_cast<int>((rank + 1) % rows.size());
    least = std::min(least, rows[rank].cells(next).devices_size());
  }
  return least;
}

}  // namespace

std::vector<v1::DeviceRow> DeviceMatrix(const v1::ClusterLinks& links,
                                        std::span<const std::string> node_ids, bool only_usable) {
  std::map<std::string, int> index;
  for (size_t i = 0; i < node_ids.size(); ++i) index[node_ids[i]] = static_cast<int>(i);
  std::vector<v1::DeviceRow> rows(node_ids.size());
  for (v1::DeviceRow& row : rows) {
    for (size_t i = 0; i < node_ids.size(); ++i) row.add_cells();
  }
  const auto device_of = [](const v1::LinkVerdict& link, const v1::LinkEnd& end) {
    const bool may_name = link.kind() == v1::LINK_KIND_THUNDERBOLT && end.rdma_device().empty() &&
                          !end.interface_name().empty();
    return may_name ? absl::StrCat("rdma_", end.interface_name()) : end.rdma_device();
  };
  for (const v1::LinkVerdict& link : links.links()) {
    if (only_usable && link.rdma_usable() != v1::FACT_YES) continue;
    const auto a = index.find(link.a().node_id()), b = index.find(link.b().node_id());
    if (a == index.end() || b == index.end()) continue;
    const std::string from_a = device_of(link, link.a()), from_b = device_of(link, link.b());
    if (from_a.empty() || from_b.empty()) continue;
    // Both at once: device k of a cell and device k of the opposite one are ends of one cable.
    rows[a->second].mutable_cells(b->second)->add_devices(from_a);
    rows[b->second].mutable_cells(a->second)->add_devices(from_b);
  }
  return rows;
}

std::vector<v1::DeviceRow> GroupMatrix(const v1::ClusterLinks& links,
                                       std::span<const std::string> node_ids, bool is_ring) {
  std::vector<v1::DeviceRow> rows = DeviceMatrix(links, node_ids, /*only_usable=*/true);
  const size_t count = rows.size();
  const int kept = is_ring ? RingCables(rows) : 1;
  for (size_t from = 0; from < count; ++from) {
    for (size_t to = 0; to < count; ++to) {
      v1::DeviceCell* cell = rows[from].mutable_cells(static_cast<int>(to));
      if (is_ring && !AreNeighbours(from, to, count)) {
        cell->clear_devices();
      } else if (kept > 0) {
        KeepFirst(kept, cell);
      }
    }
  }
  return rows;
}

}  // namespace macrame::transport
