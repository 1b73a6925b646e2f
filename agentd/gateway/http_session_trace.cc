// The part of HttpSession that traces requests: the caller's headers, and the spans at the end.

#include <chrono>

#include "agentd/gateway/asio_names.h"
#include "agentd/gateway/http_session.h"

namespace macrame::agentd {
namespace {

// All headers of a name.
template <typename Request>
std::vector<absl::string_view> HeadersOf(const Request& request, const char* name) {
  std::vector<absl::string_view> values;
  const auto range = request.equal_range(name);
  for (auto at = range.first; at != range.second; ++at) values.push_back(Plain(at->value()));
  return values;
}

std::string NewSpanId() {
  // Half of 128 random bits, which are never all zero but for a broken source.
  std::string id = RandomId("").substr(0, kSpanIdDigits);
  if (id.find_first_not_of('0') == std::string::npos) id.back() = '1';
  return id;
}

int64_t UnixOffsetNs() {
  using std::chrono::nanoseconds;
  const auto steady = std::chrono::steady_clock::now().time_since_epoch();
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<nanoseconds>(wall).count() -
         std::chrono::duration_cast<nanoseconds>(steady).count();
}

}  // namespace

void HttpSession::BeginTrace() {
  const auto& request = parser_->get();
  // Whoever looks after the agent again and again is traced where it says so itself.
  const double ratio = IsProbe(record_.route) ? 0 : state_->options.traces.ratio;
  auto context = ContextOf(HeadersOf(request, "traceparent"), HeadersOf(request, "tracestate"),
                           ratio, [] { return RandomId(""); });
  if (!context.has_value()) return;
  record_.trace_id = context->trace_id;
  traced_.emplace();
  traced_->context = *std::move(context);
  traced_->span_id = NewSpanId();
}

void HttpSession::KeepFacts() { traced_->calls = feed_->Facts(); }

void HttpSession::EndTrace() {
  if (!IsTraced()) return;
  state_->options.traces.take(SpansOf(record_, *traced_, {UnixOffsetNs(), NewSpanId}));
}

}  // namespace macrame::agentd
