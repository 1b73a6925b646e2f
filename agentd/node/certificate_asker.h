#pragma once

// Has a certificate signed by a node that has the cluster's secret file: asks one live member after
// the other until one signs. Owner thread.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agentd/node/member_monitor.h"
#include "agentd/node/peer_channels.h"
#include "macrame/v1/enrolment.pb.h"
#include "transport/dispatcher.h"
#include "transport/trust.h"

namespace macrame::agentd {

inline constexpr Duration kRenewTimeout = std::chrono::seconds(5);

class CertificateAsker {
 public:
  // What was signed, by whom, and its key. When it is not taken the next member is asked.
  using Take = std::function<absl::Status(const NodeId& signer, const std::string& certificate_pem,
                                          const std::string& key_pem)>;
  // All were asked in vain; failure() says why.
  using OnFailed = std::function<void()>;

  CertificateAsker(transport::Dispatcher& dispatcher, PeerChannels& channels,
                   const MemberMonitor& members)
      : dispatcher_(dispatcher), channels_(channels), members_(members) {}

  // With a key of its own each time. `https_names`: as RenewCertificateRequest's; empty for the
  // node's own certificate. Not while it asks.
  void Begin(std::vector<std::string> https_names, Take take, OnFailed on_failed);
  // Goes on where a member can't answer any more: it was revoked or forgotten. Now and then.
  void Tick();
  bool is_asking() const { return request_.has_value(); }
  // Of the present or the last try; empty when that one was signed, and before the first.
  const std::string& failure() const { return failure_; }

 private:
  void AskNext();
  void OnAnswer(const NodeId& node, const absl::StatusOr<v1::RenewCertificateResponse>& response);

  transport::Dispatcher& dispatcher_;
  PeerChannels& channels_;
  const MemberMonitor& members_;
  std::optional<transport::CertificateRequest> request_;  // on its way
  std::vector<std::string> https_names_;
  Take take_;
  OnFailed on_failed_;
  std::string failure_;
  MonotonicTime asked_at_;
  std::vector<NodeId> to_ask_;
};

}  // namespace macrame::agentd
