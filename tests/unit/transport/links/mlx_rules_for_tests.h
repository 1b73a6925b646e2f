#pragma once

// What MLX 0.32 takes as a device matrix, told independently of the judge: is_valid_mesh and
// is_valid_ring of mlx/distributed/jaccl/lib/jaccl/jaccl.cpp, RING_MAX_CONNS of ring_impl.h,
// MESH_MAX_PEERS of mesh_impl.h.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "macrame/v1/link.pb.h"

namespace macrame::transport {

// Empty: MLX takes it. `is_ring`: MLX_JACCL_RING is set.
inline std::string WhyMlxRefuses(const google::protobuf::RepeatedPtrField<v1::DeviceRow>& rows,
                                 bool is_ring) {
  const int count = rows.size();
  const auto devices = [&](int from, int to) { return rows[from].cells(to).devices_size(); };
  for (int from = 0; from < count; ++from) {
    if (rows[from].cells_size() != count) return absl::StrCat("row ", from, " is not whole");
  }
  if (count < 2) return "fewer than two ranks";
  if (!is_ring && count > 8) return "more than eight ranks";
  for (int from = 0; from < count; ++from) {
    if (devices(from, from) != 0) return absl::StrCat("rank ", from, " leads to itself");
    for (int to = 0; to < count; ++to) {
      if (!is_ring && to != from && devices(from, to) == 0) {
        return absl::StrCat("no mesh: ", from, " to ", to);
      }
    }
    for (const int to : {(from + count - 1) % count, (from + 1) % count}) {
      if (!is_ring) continue;
      if (devices(from, to) != devices(0, 1)) {
        return absl::StrCat(devices(from, to), " devices from ", from, " to ", to, ", ",
                            devices(0, 1), " from 0 to 1");
      }
      if (devices(from, to) > 4) return absl::StrCat("more than four from ", from, " to ", to);
      // Passes MLX's check, and then no connection is there to send over.
      if (devices(from, to) == 0) return absl::StrCat("none from ", from, " to ", to);
    }
  }
  return "";
}

}  // namespace macrame::transport
