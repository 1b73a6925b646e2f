#pragma once

// The HTTP gateway: OpenAI's chat completions over any loaded model, on one port of every agent.
//
//   auto gateway = Gateway::Start(options, backend);
//   if (!gateway.ok()) log it and go on without: a taken port is no reason to stop the agent.
//
// One io thread of its own; Start, port and Stop may be called from any one thread. The backend
// must outlive the gateway.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "agentd/gateway/access/gateway_access.h"
#include "agentd/gateway/base/inference_backend.h"
#include "agentd/gateway/http/gateway_options.h"

namespace macrame::agentd {

class Gateway {
 public:
  // Listens, or says why not: PORT_TAKEN (ALREADY_EXISTS) when another program has the port,
  // CONFIG_INVALID (INVALID_ARGUMENT) when the address is none of this machine's.
  // Without `access` there are no keys.
  static absl::StatusOr<std::unique_ptr<Gateway>> Start(
      const GatewayOptions& options, InferenceBackend* backend,
      std::shared_ptr<GatewayAccess> access = nullptr);
  // Stops when that was not done yet.
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  // The port that is listened on; what was chosen when the options said 0. Where it listens on
  // 127.0.0.1 it listens on ::1 too, if the machine has that and the port is free there.
  uint16_t port() const;
  // The node is about to stop: connections end with the answer that they are at, and with `refuse`
  // further requests for text get a 503 with retry-after. Answers under way go on.
  void Drain(bool refuse);
  // Requests that are being read or answered. Any thread.
  size_t requests() const;
  // Connections that are open. Any thread.
  size_t connections() const;
  // Closes the port and all connections, cancels what they had asked for and ends the io thread.
  // Returns within a second. Answers that come later are dropped.
  void Stop();

 private:
  class Impl;
  explicit Gateway(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace macrame::agentd
