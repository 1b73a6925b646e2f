#pragma once

// What is known of one request when its answer is over: for the access log and the metrics. It
// never holds a prompt, an answer or a key. Pure.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace macrame::agentd {

struct RequestRecord {
  using Clock = std::chrono::steady_clock;

  std::string method = "other";   // "GET", "POST", …; "other": none that HTTP knows, or unread
  std::string route = "unknown";  // the path as the table of routes has it; "unknown": none of them
  int status = 0;                 // 0: the client got no answer
  uint64_t bytes_received = 0;    // of the body
  uint64_t bytes_sent = 0;        // head and all
  std::string client_address;
  std::string request_id;
  std::string model;         // as the request names it; empty: it names none
  std::string trace_id{};    // of the trace that it belongs to; empty: none
  bool client_gone = false;  // before the last byte of its answer

  Clock::time_point begun;                       // first byte of the request
  std::optional<Clock::time_point> read;         // its last byte
  std::optional<Clock::time_point> handed_on;    // to the backend
  std::optional<Clock::time_point> first_piece;  // of a stream, from the backend
  std::optional<Clock::time_point> first_byte;   // of the answer, written
  Clock::time_point ended;
};

// "GET" and the like; "other" for what HTTP does not know, which a client may make as long as it
// likes.
std::string MethodName(absl::string_view method);

// The gateway's own part of the time to a stream's first byte: from the request's last byte to the
// backend, and from the backend's first piece to the client. nullopt: it was no stream.
std::optional<std::chrono::nanoseconds> FirstByteOverhead(const RequestRecord& record);

// "POST /v1/chat/completions 200 sent=512 received=97 total_ms=41.2 first_byte_ms=12.9 client=…
// request_id='…' model='…' trace_id=…": one line, and of one kind (agentd/cores/log_guard.h),
// whatever words the client chose.
std::string AccessLine(const RequestRecord& record);

// Whether somebody asks for the state of the gateway again and again.
bool IsProbe(absl::string_view route);

}  // namespace macrame::agentd
