#include "agentd/node/certificate_asker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "proto/check.h"
#include "proto/reasons.h"

namespace macrame::agentd {

void CertificateAsker::Begin(std::vector<std::string> https_names, Take take, OnFailed on_failed) {
  MACRAME_CHECK(!is_asking()) << "one certificate is asked for at a time";
  request_ = transport::MakeCertificateRequest();
  https_names_ = std::move(https_names);
  take_ = std::move(take);
  on_failed_ = std::move(on_failed);
  to_ask_.clear();
  for (const NodeId& node : members_.Live()) to_ask_.push_back(node);
  failure_ = "no member that answers has the cluster's secret file";
  AskNext();
}

void CertificateAsker::Tick() {
  if (is_asking() && dispatcher_.Now() - asked_at_ > 2 * kRenewTimeout) AskNext();
}

void CertificateAsker::AskNext() {
  while (!to_ask_.empty()) {
    const NodeId node = to_ask_.back();
    to_ask_.pop_back();
    transport::PeerChannel* channel = channels_.For(node);
    if (channel == nullptr) continue;
    asked_at_ = dispatcher_.Now();
    v1::RenewCertificateRequest request;
    request.set_certificate_request(request_->request_der);
    for (const std::string& name : https_names_) request.add_https_names(name);
    channel->Call(kRenewCertificate, request, kRenewTimeout,
                  [this, node](const absl::StatusOr<v1::RenewCertificateResponse>& response) {
                    OnAnswer(node, response);
                  });
    return;
  }
  request_.reset();
  on_failed_();
}

void CertificateAsker::OnAnswer(const NodeId& node,
                                const absl::StatusOr<v1::RenewCertificateResponse>& response) {
  if (!is_asking()) return;
  if (response.ok()) {
    const absl::Status taken = take_(node, response->certificate(), request_->key_pem);
    if (!taken.ok()) {
      failure_ = std::string(taken.message());
      return AskNext();
    }
    request_.reset();
    to_ask_.clear();
    failure_.clear();
    return;
  }
  if (ReasonOf(response.status()).code() != reasons::kNotKeeper) {
    failure_ = absl::StrCat("node ", ShortId(node), ": ", response.status().message());
  }
  AskNext();
}

}  // namespace macrame::agentd
