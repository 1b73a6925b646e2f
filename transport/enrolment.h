#pragma once

// The join port: where a machine without a certificate shows a token and gets one. TLS 1.3, the
// server's certificate only; one question, one answer, then the connection is closed.
//
// The listener is open only while a token is valid (agentd/services/enrolment_service). Before a
// question is read, a caller has used up its place at the ConnectionGate and one of kEnrolmentsMax
// connections, each with kEnrolmentLimit in all. When these are full, or those of its address, the
// oldest makes room for the newest: of the same address, else of that which has the most. Who has
// asked its question, with its proof in it, holds none of these places and makes room for nobody.
// So callers that say nothing keep out nobody who speaks. Nothing secret is said before the owner
// has found the proof good.

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "macrame/v1/enrolment.pb.h"
#include "proto/monotonic_time.h"
#include "transport/join_token.h"
#include "transport/trust.h"

namespace macrame::transport {

inline constexpr size_t kEnrolmentsMax = 16;           // that have not asked yet
inline constexpr size_t kEnrolmentsPerAddressMax = 2;  // CountedAddress
// With those that have asked, and those that made room and are about to end.
inline constexpr size_t kEnrolmentThreadsMax = 64;
inline constexpr size_t kEnrolmentsUnprovenMax = 512;  // within kHandshakeLimit
inline constexpr size_t kEnrolmentBytesMax = 16 * 1024;
inline constexpr Duration kEnrolmentLimit = std::chrono::seconds(8);
inline constexpr size_t kEnrolmentExportBytes = 32;

class EnrolmentListener {
 public:
  struct Question {
    v1::EnrolRequest request;
    std::string exported;  // of this connection, for JoinProof
    std::string address;   // the caller's
  };
  // Any thread, once; later answers are dropped.
  using Answer = std::function<void(v1::EnrolResponse)>;
  // Called on a thread of the listener; it must not block.
  using OnQuestion = std::function<void(Question, Answer)>;

  // PORT_TAKEN as TcpAcceptor. `node` is what callers are shown, with the authority's certificate.
  static absl::StatusOr<std::unique_ptr<EnrolmentListener>> Start(const std::string& ip, int port,
                                                                  const NodeCredentials& node,
                                                                  OnQuestion on_question);
  // Ends what is under way at once, and waits for it.
  ~EnrolmentListener();

  int port() const;

 private:
  struct Parts;
  explicit EnrolmentListener(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Asks at each of the token's addresses until one answers. Blocks, at most kEnrolmentLimit for each
// address. The answer's refusal is returned as a status with its Reason. JOIN_UNREACHABLE when
// nobody answers, WRONG_CLUSTER when who answers has another authority, CLOCK_WRONG when the clocks
// are too far apart for certificates. `stopping`, when there is one, ends it early.
absl::StatusOr<v1::EnrolResponse> Enrol(const JoinToken& token, const NodeId& node_id,
                                        const std::string& hostname, const std::string& request_der,
                                        int64_t unix_s = SystemUnixSeconds(),
                                        const std::atomic<bool>* stopping = nullptr);

}  // namespace macrame::transport
