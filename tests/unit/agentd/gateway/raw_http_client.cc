#include "tests/unit/agentd/gateway/raw_http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <utility>

#include "proto/check.h"

namespace macrame::agentd {

RawHttpClient::RawHttpClient(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
  MACRAME_CHECK(fd_ >= 0) << "no socket";
  timeval limit{5, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int failed = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address);
  MACRAME_CHECK(failed == 0) << "nobody listens on port " << port;
}

RawHttpClient::~RawHttpClient() { Close(); }

void RawHttpClient::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool RawHttpClient::Send(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

bool RawHttpClient::Fill() {
  std::array<char, 65536> block;
  const ssize_t count = recv(fd_, block.data(), block.size(), 0);
  if (count <= 0) return false;
  buffer_.append(block.data(), static_cast<size_t>(count));
  return true;
}

std::string RawHttpClient::TakeLine() {
  size_t end = 0;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (!Fill()) return "\n";
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

std::string RawHttpClient::Take(size_t count) {
  while (buffer_.size() < count && Fill()) {
  }
  std::string bytes = buffer_.substr(0, count);
  buffer_.erase(0, count);
  return bytes;
}

RawResponse RawHttpClient::ReadHead() {
  RawResponse response;
  const std::string status_line = TakeLine();
  if (status_line.rfind("HTTP/1.1 ", 0) != 0) return response;
  for (std::string line = TakeLine(); !line.empty(); line = TakeLine()) {
    if (line == "\n") return RawResponse{};
    const size_t colon = line.find(": ");
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return tolower(c); });
    response.headers[name] = line.substr(colon + 2);
  }
  response.status = std::stoi(status_line.substr(9, 3));
  return response;
}

RawResponse RawHttpClient::ReadResponse(bool to_head_request) {
  RawResponse response = ReadHead();
  if (response.status == 0 || to_head_request) return response;
  if (response.headers.contains("content-length")) {
    const size_t length = std::stoul(response.headers["content-length"]);
    response.body = Take(length);
    response.complete = response.body.size() == length;
  } else if (response.headers.contains("transfer-encoding")) {
    for (;;) {
      const std::string line = TakeLine();
      if (line == "\n") return response;
      const size_t length = std::stoul(line, nullptr, 16);
      response.body += Take(length);
      const bool framed = TakeLine().empty();
      if (!framed || length == 0) {
        response.complete = framed;
        return response;
      }
    }
  } else {
    while (Fill()) {
    }
    response.body = std::exchange(buffer_, "");
    response.complete = true;
  }
  return response;
}

std::string RawHttpClient::ReadSome() {
  if (buffer_.empty()) Fill();
  return std::exchange(buffer_, "");
}

bool RawHttpClient::WaitForClose() {
  std::array<char, 65536> block;
  for (;;) {
    const ssize_t count = recv(fd_, block.data(), block.size(), 0);
    if (count == 0) return true;
    if (count < 0) return errno != EAGAIN && errno != EWOULDBLOCK;
  }
}

std::string Post(const std::string& path, const std::string& body,
                 const std::string& more_headers) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: localhost\r\n"
         "Content-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + more_headers + "\r\n" + body;
}

std::string ChatPost(const std::string& body, const std::string& more_headers) {
  return Post("/v1/chat/completions", body, more_headers);
}

std::string Get(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n";
}

std::vector<std::string> EventData(const std::string& stream) {
  std::vector<std::string> data;
  for (size_t begin = 0; begin < stream.size();) {
    const size_t end = stream.find("\n\n", begin);
    if (end == std::string::npos) break;
    const std::string event = stream.substr(begin, end - begin);
    if (event.rfind("data: ", 0) == 0) data.push_back(event.substr(6));
    begin = end + 2;
  }
  return data;
}

}  // namespace macrame::agentd
