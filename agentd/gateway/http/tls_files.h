#pragma once

// The certificate and key that the gateway shows to other machines' programs, from PEM files that
// whoever renews them writes anew. Of the io thread.

#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace macrame::agentd {

class TlsFiles {
 public:
  // `certificate`: a file with the server's certificate and those between it and its authority, in
  // this order. `key`: its private key, without a password. TLS 1.2 and above. CONFIG_INVALID names
  // the file that can't be used, and why.
  static absl::StatusOr<std::unique_ptr<TlsFiles>> Load(std::string certificate, std::string key);

  // The same of files that the agent itself writes: they may not be there yet.
  static std::unique_ptr<TlsFiles> Await(std::string certificate, std::string key);

  // For the next connection; null while awaited files are not there. Files that changed are read
  // first, a second after the last look at the earliest; where they can't be used, what was read
  // before stays, and the log says why.
  std::shared_ptr<boost::asio::ssl::context> Current();

 private:
  using Changed = std::pair<std::filesystem::file_time_type, std::filesystem::file_time_type>;

  TlsFiles(std::string certificate, std::string key)
      : certificate_(std::move(certificate)), key_(std::move(key)) {}
  Changed LastChanged() const;

  const std::string certificate_, key_;
  std::shared_ptr<boost::asio::ssl::context> context_;
  Changed changed_;
  std::chrono::steady_clock::time_point looked_;
  std::string trouble_;
};

}  // namespace macrame::agentd
