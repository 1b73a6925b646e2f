#include "transport/client_hello.h"

#include <algorithm>
#include <cstdint>

namespace macrame::transport {
namespace {

constexpr uint8_t kClientHello = 1;
constexpr size_t kRecordHeaderBytes = 5;
constexpr size_t kHandshakeHeaderBytes = 4;
constexpr size_t kVersionAndRandomBytes = 2 + 32;
constexpr uint32_t kSupportedVersions = 43;
constexpr uint32_t kTls13 = 0x0304;

// Reads big-endian numbers and blocks with a length before them; once something is missing, all
// that follows is empty.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  bool failed() const { return failed_; }
  bool empty() const { return left_.empty(); }

  uint32_t Number(size_t bytes) {
    uint32_t number = 0;
    for (const char byte : Take(bytes)) number = number << 8 | static_cast<uint8_t>(byte);
    return number;
  }
  std::string_view Take(size_t bytes) {
    if (bytes > left_.size()) {
      failed_ = true;
      left_ = {};
      return {};
    }
    const std::string_view taken = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return taken;
  }
  std::string_view Block(size_t length_bytes) { return Take(Number(length_bytes)); }

 private:
  std::string_view left_;
  bool failed_ = false;
};

bool OffersTls13(std::string_view extension) {
  Reader reader(extension);
  Reader versions(reader.Block(1));
  while (!versions.empty()) {
    if (versions.Number(2) == kTls13) return !versions.failed();
  }
  return false;
}

// `body` is the whole ClientHello behind its handshake header.
bool HelloOffersTls13(std::string_view body) {
  Reader hello(body);
  hello.Take(kVersionAndRandomBytes);
  hello.Block(1);  // session id
  hello.Block(2);  // cipher suites
  hello.Block(1);  // compression
  Reader extensions(hello.Block(2));
  while (!extensions.empty()) {
    const uint32_t kind = extensions.Number(2);
    const std::string_view extension = extensions.Block(2);
    if (!extensions.failed() && kind == kSupportedVersions) return OffersTls13(extension);
  }
  return false;
}

}  // namespace

Opening JudgeOpening(std::string_view bytes) {
  // Type and major version tell most others at once.
  constexpr std::string_view kBegins("\x16\x03", 2);
  const size_t told = std::min(bytes.size(), kBegins.size());
  if (bytes.substr(0, told) != kBegins.substr(0, told)) return Opening::kOther;
  if (bytes.size() < kRecordHeaderBytes) return Opening::kIncomplete;
  Reader header(bytes);
  header.Take(3);
  const size_t length = header.Number(2);
  if (length <= kHandshakeHeaderBytes || length > kOpeningBytesMax - kRecordHeaderBytes) {
    return Opening::kOther;
  }
  const std::string_view record = header.Take(length);
  if (header.failed()) return Opening::kIncomplete;
  Reader handshake(record);
  if (handshake.Number(1) != kClientHello) return Opening::kOther;
  const std::string_view body = handshake.Block(3);
  if (handshake.failed() || !handshake.empty()) return Opening::kOther;
  return HelloOffersTls13(body) ? Opening::kTls13 : Opening::kOther;
}

std::string_view ProtocolVersionAlert() {
  return std::string_view("\x15\x03\x01\x00\x02\x02\x46", 7);
}

}  // namespace macrame::transport
