#include "agentd/gateway/base/http_reply.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/check.h"

namespace macrame::agentd {

absl::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Error";
  }
}

std::string HttpDate(int64_t unix_seconds) {
  return absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::FromUnixSeconds(unix_seconds),
                          absl::UTCTimeZone());
}

std::string ComposeHead(const ReplyHead& head) {
  std::string text = absl::StrCat("HTTP/1.1 ", head.status, " ", ReasonPhrase(head.status), "\r\n",
                                  "content-type: ", head.content_type, "\r\n");
  for (const auto& [name, value] : head.headers) {
    MACRAME_CHECK(value.find_first_of("\r\n") == std::string::npos) << name << " breaks its line";
    absl::StrAppend(&text, name, ": ", value, "\r\n");
  }
  absl::StrAppend(&text, "x-content-type-options: nosniff\r\n",
                  "connection: ", head.keep_alive ? "keep-alive" : "close", "\r\n");
  if (head.framing == BodyFraming::kLength) {
    absl::StrAppend(&text, "content-length: ", head.content_length, "\r\n");
  } else if (head.framing == BodyFraming::kChunked) {
    absl::StrAppend(&text, "transfer-encoding: chunked\r\n");
  }
  return absl::StrCat(text, "\r\n");
}

std::string ComposeChunk(absl::string_view bytes) {
  MACRAME_CHECK(!bytes.empty()) << "an empty chunk ends the body";
  return absl::StrCat(absl::Hex(bytes.size()), "\r\n", bytes, "\r\n");
}

}  // namespace macrame::agentd
