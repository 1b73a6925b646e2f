#pragma once

// The certificate and key that the gateway shows to other machines' programs, from PEM files.

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace macrame::agentd {

// `certificate`: a file with the server's certificate and those between it and its authority, in
// this order. `key`: its private key, without a password. TLS 1.2 and above. CONFIG_INVALID names
// the file that can't be used, and why.
absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> LoadTlsFiles(
    const std::string& certificate, const std::string& key);

}  // namespace macrame::agentd
