#pragma once

// The certificate with which this node's gateway speaks HTTPS where `gateway_tls_authority` is set:
// signed by the cluster's authority, of this node's names and addresses, kept in two PEM files of
// the state folder that the gateway reads (agentd/gateway/http/tls_files.h). Made anew when it ends
// soon, when the names or addresses are others, and when the cluster is another. A node with the
// secret file signs it itself; others ask one member after the other. Owner thread.

#include <optional>
#include <string>
#include <vector>

#include "agentd/node/certificate_asker.h"
#include "agentd/node/member_monitor.h"
#include "agentd/node/node_trust.h"
#include "agentd/node/own_node.h"
#include "agentd/node/peer_channels.h"
#include "transport/dispatcher.h"
#include "transport/https_certificate.h"

namespace macrame::agentd {

inline constexpr Duration kGatewayCertificateLookedAt = std::chrono::seconds(5);
// After all members were asked in vain.
inline constexpr Duration kHttpsPause = std::chrono::seconds(15);
// Between two of one node whose addresses come and go.
inline constexpr Duration kHttpsRenewedAtMost = std::chrono::minutes(5);

class GatewayCertificate {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    const NodeTrust& trust;
    PeerChannels& channels;
    const MemberMonitor& members;
    const OwnNode& own;
  };
  // `names`: further ones than the host's own. Files that an earlier run left are taken when they
  // still fit.
  GatewayCertificate(Parts parts, const std::string& state_folder, std::vector<std::string> names);

  const std::string& certificate_path() const { return certificate_path_; }
  const std::string& key_path() const { return key_path_; }
  // Each 100 ms or so; looks each kGatewayCertificateLookedAt.
  void Tick();
  // HTTPS_NOT_READY while there is none that is valid.
  std::optional<v1::Reason> Problem() const;

 private:
  int64_t NowS() const { return static_cast<int64_t>(parts_.dispatcher.UnixMs() / 1000); }
  bool IsNeeded(const std::vector<std::string>& wanted) const;
  void LookAtFiles();
  void Make(const std::vector<std::string>& names);
  void SignHere(const transport::ClusterSecret& secret, const std::vector<std::string>& names);
  // What a keeper signed must be valid now: its clock may be wrong.
  absl::Status CheckDates(const NodeId& signer, const transport::CertificateDates& dates) const;
  // Writes both files, the key first: the gateway takes them when they fit each other.
  absl::Status Take(const NodeId& signer, const std::string& certificate_pem,
                    const std::string& key_pem);
  void NoteFailure(const std::string& why);

  Parts parts_;
  const std::string certificate_path_, key_path_;
  const std::vector<std::string> more_names_;
  std::string looked_at_authority_;
  std::optional<transport::HttpsCertificate> present_;
  std::string failure_;
  MonotonicTime looked_at_;
  MonotonicTime renew_from_;
  CertificateAsker asker_;
};

}  // namespace macrame::agentd
