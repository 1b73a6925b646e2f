#pragma once

// Posts JSON to one URL, one try at a time on the calling thread, over TLS where the URL says
// https, with the certificates that the system trusts. Shared by those who tell other programs
// something (webhook, trace_exporter), each on a thread of its own.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "agentd/base/web_url.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

using HttpFields = std::vector<std::pair<std::string, std::string>>;

struct HttpPostAnswer {
  int status = 0;
  std::optional<Duration> retry_after{};  // where it says so in seconds
  std::string body;                       // at most kHttpAnswerBytesMax; else empty
};
inline constexpr size_t kHttpAnswerBytesMax = 64 * 1024;

class HttpPost {
 public:
  // `fields` go into each request's head.
  HttpPost(WebUrl url, HttpFields fields);
  ~HttpPost();

  // Any answer at all, or why there was none: DEADLINE_EXCEEDED, UNAVAILABLE, CANCELLED after Stop.
  // Waits for at most `timeout`, and as long again for the system to look a name up.
  absl::StatusOr<HttpPostAnswer> Try(const std::string& json, Duration timeout);
  // False: Stop was called, before or meanwhile.
  bool Pause(Duration pause);
  // Any thread. Ends what is under way, but for the lookup of a name, which the system ends.
  void Stop();

 private:
  struct State;
  const WebUrl url_;
  const HttpFields fields_;
  const std::unique_ptr<State> state_;
};

}  // namespace macrame::agentd
