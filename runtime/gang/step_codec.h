#pragma once

// What rank 0 says to the other ranks of its gang before each piece of work, and what they answer,
// as bytes. Pure. Little-endian; a payload's first byte is its kind. Frames around them:
// transport/gang/sealed_socket.h.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/model/step/cold_orders.h"
#include "runtime/model/step/forward_step.h"

namespace macrame::runtime::engine {

inline constexpr size_t kStepTokensMax = 8192;  // of all segments of a step
inline constexpr size_t kStepSegmentsMax = 1024;
inline constexpr size_t kStepSlotsMax = 65536;     // closed by one step
inline constexpr size_t kStepBlocksMax = 1 << 20;  // new ones, of all segments
inline constexpr size_t kVerifySizesInStepMax = 64;
inline constexpr size_t kReportTextBytesMax = 4096;
inline constexpr size_t kColdOrdersMax = 512;       // of each kind, in one message
inline constexpr size_t kColdLoadTokensMax = 4096;  // of one load

enum class StepKind : uint8_t {
  kConnect = 1,  // everybody is here: form the collective group now
  kForward = 2,  // run `forward` through the layers
  kReady = 3,    // the gang has warmed up
  kStop = 4,     // orderly end
  kVerify = 5,   // timed collectives: `verify_rounds` of each size in `verify_kib`
  kCold = 6,     // carry `cold` out
  kProve = 7,    // each stage proves that its slices are its layers (model/split_proof.h)
};

// Type in which hidden states and partial sums cross between ranks: rank 0's.
enum class WireType : uint8_t { kFloat32 = 0, kBfloat16 = 1, kFloat16 = 2 };

struct Step {
  StepKind kind = StepKind::kForward;
  uint64_t number = 0;  // rises by one with each step; a gap means that a rank is out of step
  WireType wire_type = WireType::kFloat32;  // kConnect only
  ForwardStep forward;                      // kForward only
  uint32_t verify_rounds = 0;               // kVerify only
  std::vector<uint32_t> verify_kib;
  ColdOrders cold;  // kCold only
  bool operator==(const Step&) const = default;
};

enum class ReportKind : uint8_t {
  kLoaded = 1,      // weights are in memory
  kFailed = 2,      // termination message; the connection closes after it
  kColdLoaded = 3,  // of the cold tier's load `cold_load`, `cold_blocks` blocks are in memory
  kColdOff = 4,     // this rank has no cold tier; `text` says why
};

struct Report {
  ReportKind kind = ReportKind::kLoaded;
  std::string text;        // cut at kReportTextBytesMax
  uint64_t cold_load = 0;  // kColdLoaded only
  uint32_t cold_blocks = 0;
  bool operator==(const Report&) const = default;
};

// Payloads, without the length.
std::string EncodeStep(const Step& step);
absl::StatusOr<Step> DecodeStep(std::string_view payload);
std::string EncodeReport(const Report& report);
absl::StatusOr<Report> DecodeReport(std::string_view payload);

}  // namespace macrame::runtime::engine
