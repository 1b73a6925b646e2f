#pragma once

// Measures what a link does for small and for large messages, over TCP between two given addresses.
//
// Nothing listens but while a peer, known by its certificate, has asked for it: the side that is
// measured opens a port for one caller who must show a fresh token within kMeterLife, and answers
// it for at most kMeterSessionLimit.

#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "macrame/v1/link.pb.h"
#include "transport/stream_socket.h"

namespace macrame::transport {

inline constexpr std::chrono::milliseconds kMeterLife{10'000};
inline constexpr std::chrono::milliseconds kMeterSessionLimit{5'000};
inline constexpr size_t kMetersOpenMax = 8;
inline constexpr size_t kMeterTokenBytes = 32;
// A round trip is one message of so many bytes there and back.
inline constexpr size_t kMeterMessageBytes = 64;
inline constexpr int kMeterRoundTrips = 100;
// Bandwidth is taken over so many bytes, or what passes in this time.
inline constexpr uint64_t kMeterBytesMax = 64 << 20;
inline constexpr std::chrono::milliseconds kMeterBandwidthTime{200};
inline constexpr std::chrono::milliseconds kMeterConnectLimit{1'000};

// The side that is measured. Any thread.
class LinkMeter {
 public:
  struct Offer {
    int port = 0;
    std::string token;
  };

  LinkMeter() = default;
  ~LinkMeter();  // ends what is under way
  LinkMeter(const LinkMeter&) = delete;
  LinkMeter& operator=(const LinkMeter&) = delete;

  // Listens at an own address. RESOURCE_EXHAUSTED when kMetersOpenMax are open.
  absl::StatusOr<Offer> Open(const std::string& ip);

 private:
  struct Session {
    StreamSocket listener;
    std::string token;
    std::thread thread;
    std::mutex mutex;
    StreamSocket* caller = nullptr;  // under mutex
    bool ended = false;              // under mutex
  };
  static void Serve(Session& session);

  std::mutex mutex_;
  std::list<std::unique_ptr<Session>> sessions_;
};

struct MeterTarget {
  std::string from_ip;
  std::string to_ip;
  int port = 0;
  std::string token;
  bool bandwidth = true;
};

// Blocks for at most some two seconds. Figures, or `failure` (LINK_UNREACHABLE); the caller fills
// in nodes, interfaces and time.
v1::LinkMeasurement MeasureLink(const MeterTarget& target);

}  // namespace macrame::transport
