#pragma once

// What a node's certificate for HTTPS says (trust.h signs them). Pure, any thread.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/trust.h"

namespace macrame::transport {

struct HttpsCertificate {
  std::vector<std::string> names;  // hosts and addresses, sorted
  CertificateDates dates;
};

// INVALID_ARGUMENT when certificate, key and authority can't be read, or don't belong together.
absl::StatusOr<HttpsCertificate> DescribeHttpsCertificate(const std::string& certificate_pem,
                                                          const std::string& key_pem,
                                                          const std::string& authority_pem);

}  // namespace macrame::transport
