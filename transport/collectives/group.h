#pragma once

// The collectives of one gang. All ranks call the same operations in the same order, with the same
// sizes. Results are bit-identical on every rank: each element is summed once and handed to all, or
// summed by all in rank order. 16-bit floats are added in float32 and rounded once where a mesh
// sums them, once a hop in a ring. One thread at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "proto/backends.h"
#include "transport/collectives/wire.h"

namespace macrame::transport {

enum class Element {
  kBool,
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kUint64,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kComplex64,
};
size_t SizeOf(Element element);

enum class Reduction { kSum, kMax, kMin };

class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Backend backend() const = 0;
  // Whether AllReduce adds each element in rank order, however many there are.
  virtual bool sums_in_rank_order() const = 0;

  // `in` and `out` may be the same memory; both have `count` elements.
  virtual absl::Status AllReduce(const void* in, void* out, size_t count, Element element,
                                 Reduction reduction) = 0;
  // `out` holds size() times the bytes of `in`, in rank order.
  virtual absl::Status AllGather(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  // `in` has size() times `count` elements; this rank gets part rank() of the sum.
  virtual absl::Status ReduceScatter(const void* in, void* out, size_t count, Element element,
                                     Reduction reduction) = 0;
  virtual absl::Status SendTo(std::span<const std::byte> bytes, int peer) = 0;
  virtual absl::Status ReceiveFrom(std::span<std::byte> bytes, int peer) = 0;
  // Both at the same time: neither waits for the other.
  virtual absl::Status SendAndReceive(std::span<const std::byte> out, int to,
                                      std::span<std::byte> in, int from) = 0;

  virtual WireStats stats() const = 0;
  // Any thread.
  virtual void ShutDown() = 0;
};

// Collectives over a wire: a mesh exchanges small messages at once with everybody and large ones as
// reduce-scatter and all-gather; a ring passes pieces to its neighbours.
std::unique_ptr<Group> MakeGroup(std::unique_ptr<Wire> wire, Topology topology);

}  // namespace macrame::transport
