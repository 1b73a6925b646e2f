#include "agentd/gateway/http/tls_files.h"

#include <spdlog/spdlog.h>

#include <system_error>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/http/asio_names.h"
#include "proto/reasons.h"
#include "transport/regular_file.h"
#include "transport/wipe.h"

namespace macrame::agentd {
namespace {

constexpr std::chrono::seconds kLook{1};
constexpr size_t kPemBytesMax = 1 << 20;

absl::Status Unusable(const char* setting, const std::string& path, const std::string& why) {
  v1::Reason reason =
      MakeReason(reasons::kConfigInvalid,
                 absl::StrCat("the gateway can't use ", setting, " (", path, "): ", why));
  reason.set_remedy(
      "name PEM files that agentd's user can read, of a certificate and its own key without a "
      "password");
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

std::string Said(const absl::Status& status) { return std::string(status.message()); }

absl::StatusOr<std::shared_ptr<net::ssl::context>> Read(const std::string& certificate,
                                                        const std::string& key) {
  auto context = std::make_shared<net::ssl::context>(net::ssl::context::tls_server);
  context->set_options(net::ssl::context::no_tlsv1 | net::ssl::context::no_tlsv1_1 |
                       SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  // A file that asks for one is an error, not a question at the terminal.
  beast::error_code error;
  context->set_password_callback([](size_t, net::ssl::context::password_purpose) { return ""; },
                                 error);
  const auto chain = transport::ReadRegularFile(certificate, kPemBytesMax);
  if (!chain.ok()) return Unusable("gateway_tls_certificate", certificate, Said(chain.status()));
  if (!error) context->use_certificate_chain(net::buffer(*chain), error);
  if (error) return Unusable("gateway_tls_certificate", certificate, error.message());
  auto secret = transport::ReadRegularFile(key, kPemBytesMax);
  if (!secret.ok()) return Unusable("gateway_tls_key", key, Said(secret.status()));
  // This holds it against the certificate, too.
  context->use_private_key(net::buffer(*secret), net::ssl::context::pem, error);
  transport::Wipe(*secret);
  if (error) return Unusable("gateway_tls_key", key, error.message());
  return context;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsFiles>> TlsFiles::Load(std::string certificate, std::string key) {
  std::unique_ptr<TlsFiles> files(new TlsFiles(std::move(certificate), std::move(key)));
  files->looked_ = std::chrono::steady_clock::now();
  files->changed_ = files->LastChanged();
  auto context = Read(files->certificate_, files->key_);
  if (!context.ok()) return context.status();
  files->context_ = *std::move(context);
  return files;
}

std::unique_ptr<TlsFiles> TlsFiles::Await(std::string certificate, std::string key) {
  std::unique_ptr<TlsFiles> files(new TlsFiles(std::move(certificate), std::move(key)));
  files->looked_ = std::chrono::steady_clock::now() - kLook;
  return files;
}

TlsFiles::Changed TlsFiles::LastChanged() const {
  std::error_code missing;
  return {std::filesystem::last_write_time(certificate_, missing),
          std::filesystem::last_write_time(key_, missing)};
}

std::shared_ptr<net::ssl::context> TlsFiles::Current() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < kLook) return context_;
  looked_ = now;
  const Changed changed = LastChanged();
  if (context_ != nullptr && changed == changed_) return context_;
  auto fresh = Read(certificate_, key_);
  if (!fresh.ok()) {
    // One of the two may be written later.
    if (context_ == nullptr) return nullptr;
    const std::string trouble(fresh.status().message());
    if (trouble != trouble_) spdlog::warn("{}; the certificate from before stays", trouble);
    trouble_ = trouble;
    return context_;
  }
  context_ = *std::move(fresh);
  changed_ = changed;
  trouble_.clear();
  spdlog::info("gateway: took the new certificate {}", certificate_);
  return context_;
}

}  // namespace macrame::agentd
