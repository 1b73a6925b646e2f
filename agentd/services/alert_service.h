#pragma once

// Tells a webhook of problems that stay, and of their end (cores/alert_tracker.h). Every agent
// that has one looks; the coordinator tells, and where there is none, whoever sees that. Owner
// thread.

#include <functional>
#include <string>
#include <vector>

#include "agentd/cores/alert_tracker.h"
#include "agentd/cores/election.h"
#include "agentd/services/status_reporter.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

// How often problems are looked at.
inline constexpr Duration kAlertLook = std::chrono::seconds(2);

// What is posted of one alert: `text` and `content` for chats, and its parts for programs.
std::string AlertJson(const Alert& alert, const std::string& cluster, const std::string& node_name,
                      uint64_t now_unix_ms);

class AlertService {
 public:
  // Delivers a message (webhook.h); `done` once, on the owner thread.
  using Post = std::function<void(std::string json, std::function<void(const absl::Status&)> done)>;
  struct Parts {
    transport::Dispatcher& dispatcher;
    const Election& election;
    StatusReporter& reporter;
    NodeId self;
    // Of this node alone, as far as no other sees them.
    std::function<std::vector<v1::Reason>()> own_problems;
  };

  // `url`: where `post` delivers to, as the configuration has it. Empty `post`: nobody is told.
  AlertService(Parts parts, std::string url, Post post);

  // At least each kAlertLook.
  void Tick();
  // Why the last message was not delivered; code empty: it was, or there was none.
  const v1::Reason& trouble() const { return trouble_; }

 private:
  // Of this node, and seen by no other.
  bool IsOwn(const v1::Reason& reason) const;
  void Tell(const Alert& alert, const v1::ClusterStatus& status);

  Parts parts_;
  const std::string url_;
  AlertTracker tracker_;
  MonotonicTime looked_at_;
  bool led_ = false;
  v1::Reason trouble_;
  const Post post_;  // after what its callbacks use
};

}  // namespace macrame::agentd
