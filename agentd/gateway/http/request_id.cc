#include "agentd/gateway/http/request_id.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace macrame::agentd {

bool IsRequestId(absl::string_view text) {
  return !text.empty() && text.size() <= kRequestIdBytesMax &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || absl::StrContains("-_.:/+=@", static_cast<char>(c));
         });
}

}  // namespace macrame::agentd
