#pragma once

// Sends spans to an OpenTelemetry collector, as JSON over HTTP, in batches and on a thread of its
// own: whoever adds spans never waits. What waits is bounded; what has no place, or can't be
// delivered, is dropped and counted.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "agentd/base/web_url.h"
#include "agentd/services/http_post.h"
#include "agentd/tracing/export_decision.h"
#include "agentd/tracing/otlp_json.h"
#include "agentd/tracing/span.h"
#include "agentd/tracing/span_queue.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

struct TraceExporterOptions {
  WebUrl url;         // as TracesUrl makes it
  HttpFields fields;  // of each request's head; never logged
  TraceSource source;
  size_t waiting_max = 4096;                      // spans
  size_t batch_max = 512;                         // spans of one request to the collector
  Duration batch_wait = std::chrono::seconds(1);  // for more of them
  Duration try_limit = std::chrono::seconds(10);
  Duration flush_limit = std::chrono::seconds(2);  // from BeginStop on
  ExportLimits limits{};
};

// A file of lines "name: value", such as "authorization: Bearer …"; empty lines and those that
// begin with # are none. INVALID_ARGUMENT or NOT_FOUND name the file and the line, never what
// stands there: unreadable, readable by other users, too long, malformed, a field that each request
// has anyway.
absl::StatusOr<HttpFields> ReadTraceFields(const std::string& path);

class TraceExporter {
 public:
  // Any thread. How many spans were taken by the collector, and how many were dropped.
  struct Counters {
    std::function<void(uint64_t)> sent;
    std::function<void(uint64_t)> dropped;
  };

  TraceExporter(TraceExporterOptions options, Counters counters);
  // As BeginStop, and waits for its end.
  ~TraceExporter();
  TraceExporter(const TraceExporter&) = delete;
  TraceExporter& operator=(const TraceExporter&) = delete;

  // Any thread.
  void Add(std::vector<Span> spans);
  // Sends what waits, for at most flush_limit; what comes later is dropped. Does not wait.
  void BeginStop();

 private:
  void Run();
  // Empty: this has stopped, and nothing waits.
  std::vector<Span> NextBatch();
  void Deliver(const std::vector<Span>& spans);
  // For a try that begins now; zero: the time is over.
  Duration TimeForTry();
  bool PauseFor(Duration pause);
  void Tell(uint64_t spans, const std::string& trouble);

  const TraceExporterOptions options_;
  const Counters counters_;
  HttpPost post_;
  std::mutex mutex_;
  std::condition_variable wake_;
  SpanQueue waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicTime stop_by_ ABSL_GUARDED_BY(mutex_);
  bool is_in_trouble_ = false;  // its own thread's: said in the log already
  std::thread thread_;
};

}  // namespace macrame::agentd
