#include "agentd/gateway/tls_files.h"

#include "absl/strings/str_cat.h"
#include "agentd/gateway/asio_names.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

absl::Status Unusable(const char* setting, const std::string& path,
                      const beast::error_code& error) {
  v1::Reason reason = MakeReason(
      reasons::kConfigInvalid,
      absl::StrCat("the gateway can't use ", setting, " (", path, "): ", error.message()));
  reason.set_remedy(
      "name PEM files that agentd's user can read, of a certificate and its own key without a "
      "password");
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

}  // namespace

absl::StatusOr<std::shared_ptr<net::ssl::context>> LoadTlsFiles(const std::string& certificate,
                                                                const std::string& key) {
  auto context = std::make_shared<net::ssl::context>(net::ssl::context::tls_server);
  context->set_options(net::ssl::context::no_tlsv1 | net::ssl::context::no_tlsv1_1 |
                       SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  // A file that asks for one is an error, not a question at the terminal.
  beast::error_code error;
  context->set_password_callback([](size_t, net::ssl::context::password_purpose) { return ""; },
                                 error);
  if (!error) context->use_certificate_chain_file(certificate, error);
  if (error) return Unusable("gateway_tls_certificate", certificate, error);
  // This holds it against the certificate, too.
  context->use_private_key_file(key, net::ssl::context::pem, error);
  if (error) return Unusable("gateway_tls_key", key, error);
  return context;
}

}  // namespace macrame::agentd
