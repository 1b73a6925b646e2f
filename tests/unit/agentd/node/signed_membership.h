#pragma once

// A membership as a keeper of the secret signs it, and a wall clock that a test sets.

#include <cstdint>

#include "proto/ids.h"
#include "tests/support/fake_dispatcher.h"
#include "transport/trust.h"

namespace macrame::tests {

class SetClock : public transport::FakeDispatcher {
 public:
  explicit SetClock(int64_t now_s) : unix_s(now_s) {}
  uint64_t UnixMs() const override { return static_cast<uint64_t>(unix_s) * 1000; }
  int64_t unix_s;
};

inline transport::NodeMembership SignedMembership(const transport::ClusterSecret& secret,
                                                  const NodeId& node, int64_t signed_s) {
  const transport::CertificateRequest request = transport::MakeCertificateRequest();
  transport::NodeMembership membership;
  membership.cluster_id = secret.cluster_id;
  membership.cluster_name = secret.cluster_name;
  membership.beacon_key = secret.beacon_key;
  membership.node.node_id = node;
  membership.node.key_pem = request.key_pem;
  membership.node.certificate_pem =
      *transport::SignCertificateRequest(secret, node, request.request_der, signed_s);
  membership.node.authority_certificate_pem = secret.authority_certificate_pem;
  return membership;
}

}  // namespace macrame::tests
