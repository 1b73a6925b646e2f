#pragma once

// Answers as bytes: status line and header fields. Pure.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace macrame::agentd {

using HeaderFields = std::vector<std::pair<std::string, std::string>>;

// A whole answer.
struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  // If set, they are sent in place of `body`, without a copy. The bytes of the second one outlive
  // every connection.
  std::shared_ptr<const std::string> shared_body;
  absl::string_view fixed_body;
  HeaderFields headers;  // besides those that every answer has
};

absl::string_view ReasonPhrase(int status);

// How the end of the body is known.
enum class BodyFraming { kLength, kChunked, kUntilClose };

struct ReplyHead {
  int status = 200;
  absl::string_view content_type;
  BodyFraming framing = BodyFraming::kLength;
  size_t content_length = 0;  // with kLength
  bool keep_alive = false;
  HeaderFields headers;
};

// As the Date header has it (RFC 9110, 5.6.7).
std::string HttpDate(int64_t unix_seconds);

// With the empty line at its end. Values are ours and hold no line breaks (checked).
std::string ComposeHead(const ReplyHead& head);

// `bytes` as one HTTP chunk; the empty one would end the body and is not allowed (checked).
std::string ComposeChunk(absl::string_view bytes);
inline constexpr absl::string_view kLastChunk = "0\r\n\r\n";

}  // namespace macrame::agentd
