// What clients ask the gateway for, as each of its paths reads it: a request is taken or refused in
// a sentence with a status of its own, and what is taken lies within its bounds.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <variant>

#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/dialects/chat_request.h"
#include "agentd/gateway/dialects/embedding_request.h"
#include "agentd/gateway/dialects/text_request.h"
#include "agentd/gateway/http/gateway_options.h"

namespace {

using namespace macrame::agentd;

template <typename Request>
void Check(const std::variant<Request, ApiError>& parsed) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    if (error->http_status < 400 || error->http_status >= 500 || error->message.empty()) abort();
    if (ErrorBody(*error).empty()) abort();
    return;
  }
  if (std::get<Request>(parsed).generate.deployment().empty()) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string body(reinterpret_cast<const char*>(data), size);
  const size_t depth = GatewayOptions().json_depth_max;
  Check(ParseChatRequest(body, depth));
  Check(ParseTextRequest(body, depth));
  Check(ParseEmbeddingRequest(body, depth));
  return 0;
}
