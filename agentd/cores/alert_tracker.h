#pragma once

// Which problems of a cluster are worth waking somebody for, and when: those that stay. Pure.
//
// A problem of a model is one for as long as the model is not served as it was asked for, whatever
// the cause is called; of others one while it has one code and node. It is
// told once when it has been there for raise_after, and once more when it has been away for
// over_after. What is how somebody configured it is not told (IsNotice), but for what wears a
// machine or ends by itself badly: heat, speed, certificates.

#include <map>
#include <string>
#include <vector>

#include "macrame/v1/common.pb.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

struct AlertOptions {
  Duration raise_after = std::chrono::seconds(10);
  Duration over_after = std::chrono::seconds(30);
};

struct Alert {
  bool is_over = false;
  v1::Reason reason;           // as it was last seen
  uint64_t since_unix_ms = 0;  // when the problem came
};

struct Problem {
  v1::Reason reason;
  std::string model;  // that is not served as it was asked for; empty: of something else
};

class AlertTracker {
 public:
  explicit AlertTracker(AlertOptions options = {}) : options_(options) {}

  // `problems`: all that there are now. What is to be told of them.
  std::vector<Alert> Update(const std::vector<Problem>& problems, MonotonicTime now,
                            uint64_t now_unix_ms);
  // What was told and is there still: for one who takes over from another that may not have.
  std::vector<Alert> Raised() const;

 private:
  struct Known {
    v1::Reason reason;
    MonotonicTime came_at;
    MonotonicTime seen_at;
    uint64_t since_unix_ms = 0;
    bool is_told = false;
  };

  const AlertOptions options_;
  std::map<std::string, Known> known_;
};

// Whether problems of this code are told, where they are of no model.
bool IsAlert(std::string_view code);

}  // namespace macrame::agentd
