#pragma once

// Posts JSON to one URL, over TLS where it says https, with the certificates that the system
// trusts. One message after the other on a thread of its own; each is tried three times, ten
// seconds at the most each time. Post from the owner thread; `on_done` comes there, once a message,
// but not after this is destroyed.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agentd/base/web_url.h"
#include "proto/monotonic_time.h"
#include "transport/dispatcher.h"
#include "transport/worker_thread.h"

namespace macrame::agentd {

struct WebhookOptions {
  Duration timeout = std::chrono::seconds(10);
  // Between two tries.
  std::vector<Duration> pauses = {std::chrono::seconds(2), std::chrono::seconds(10)};
};

class Webhook {
 public:
  using Done = std::function<void(const absl::Status&)>;

  // `authorization`: the header field of that name; empty: none.
  Webhook(transport::Dispatcher& dispatcher, WebUrl url, std::string authorization,
          WebhookOptions options = {});
  // Ends the message under way, but for the lookup of a name, which the system ends; those that
  // wait are dropped.
  ~Webhook();

  void Post(std::string json, Done on_done);

 private:
  struct Parts;

  transport::Dispatcher& dispatcher_;
  const std::shared_ptr<Parts> parts_;
  std::unique_ptr<transport::WorkerThread> worker_;
};

}  // namespace macrame::agentd
