#pragma once

// What the connections of one gateway share. Touched by the io thread only.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "agentd/gateway/gateway_options.h"
#include "agentd/gateway/inference_backend.h"

namespace macrame::agentd {

class HttpSession;

struct GatewayState {
  GatewayOptions options;
  InferenceBackend* backend = nullptr;
  std::shared_ptr<boost::asio::io_context> io;
  std::set<HttpSession*> sessions;
  bool stopping = false;
};

// `prefix` and 32 random hex digits.
std::string RandomId(const char* prefix);

}  // namespace macrame::agentd
