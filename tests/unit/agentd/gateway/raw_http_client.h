#pragma once

// A socket that says exactly what a test writes, and reads answers one by one. Every wait is
// limited to 5 s. Written against the standard alone, so that it does not share the gateway's
// mistakes.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace macrame::agentd {

struct RawResponse {
  int status = 0;                              // 0: the connection ended before a whole answer
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool complete = false;                       // the end that was announced came
};

class RawHttpClient {
 public:
  explicit RawHttpClient(uint16_t port);
  ~RawHttpClient();
  RawHttpClient(const RawHttpClient&) = delete;
  RawHttpClient& operator=(const RawHttpClient&) = delete;

  // False when the other side has closed.
  bool Send(const std::string& bytes);
  RawResponse ReadResponse(bool to_head_request = false);
  // The head only; the body stays to be read.
  RawResponse ReadHead();
  // Whatever comes next; empty at the end or after 5 s.
  std::string ReadSome();
  // True when the other side closes within 5 s (what it still says is dropped).
  bool WaitForClose();
  void Close();

 private:
  bool Fill();
  std::string TakeLine();
  std::string Take(size_t count);

  int fd_;
  std::string buffer_;
};

// With the usual header fields.
std::string Post(const std::string& path, const std::string& body,
                 const std::string& more_headers = "");
// To /v1/chat/completions.
std::string ChatPost(const std::string& body, const std::string& more_headers = "");
std::string Get(const std::string& path);
// The `data:` payloads of an event stream.
std::vector<std::string> EventData(const std::string& stream);

}  // namespace macrame::agentd
