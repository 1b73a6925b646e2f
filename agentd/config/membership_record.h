#pragma once

// What an agent keeps in its state folder of the cluster that it is a member of: where the secret
// file, or the membership beside it, was found. So a start without --cluster-secret-file is a
// member as the start before it was, and a node whose files are gone says so instead of standing
// alone as a cluster of its own. Blocking, small. Any thread.

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "agentd/config/config.h"

namespace macrame::agentd {

struct MembershipRecord {
  std::string secret_file;  // an absolute path; the membership is beside it
  std::string cluster_name;
};

std::string MembershipRecordPath(const std::string& state_folder);

// Unset when there is none, or none that can be read. An empty `state_folder` has none.
std::optional<MembershipRecord> ReadMembershipRecord(const std::string& state_folder);

// Replaces the record when it says something else. An empty `state_folder` keeps nothing.
absl::Status WriteMembershipRecord(const std::string& state_folder, MembershipRecord record);

// Where nothing names a secret file, the recorded one is taken, unless only the default's place has
// a secret or membership. Paths are expanded already.
void RecallSecretFile(LoadedConfig* config);

}  // namespace macrame::agentd
