#pragma once

// Which request ids of clients (x-request-id) are taken over. Pure.

#include <string>

#include "absl/strings/string_view.h"

namespace macrame::agentd {

inline constexpr size_t kRequestIdBytesMax = 128;

// 1 to kRequestIdBytesMax letters, digits and any of -_.:/+=@: it goes into headers as it is.
bool IsRequestId(absl::string_view text);

}  // namespace macrame::agentd
