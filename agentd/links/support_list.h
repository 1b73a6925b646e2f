#pragma once

// The dated file of what became known after a release: which machines RDMA works on after all.
// YAML:
//
//  date: 2026-11-20
//  entries:
//  - {subject: rdma, machine_models: [Mac15,8], os_version_min: 27.1, supported: true, source: …}

#include <string>

#include "absl/status/statusor.h"
#include "macrame/v1/link.pb.h"

namespace macrame::agentd {

inline constexpr size_t kSupportListBytesMax = 256 * 1024;
inline constexpr int kSupportListEntriesMax = 1000;

// INVALID_ARGUMENT with "path: what" for what can't be read; NOT_FOUND.
absl::StatusOr<v1::SupportList> ReadSupportList(const std::string& path);
absl::StatusOr<v1::SupportList> ParseSupportList(const std::string& text, const std::string& path);

// What is known as of this release.
const v1::SupportList& ShippedSupportList();

}  // namespace macrame::agentd
