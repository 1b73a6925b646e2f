// Collectives where a rank has a way to its two neighbours only: pieces go round.

#include <algorithm>
#include <cstring>
#include <vector>

#include "transport/collectives/group_base.h"
#include "transport/collectives/reduce.h"

namespace macrame::transport {
namespace {

// Up to here all contributions go round and everybody adds them up: half the steps of passing sums.
constexpr size_t kSmallBytes = 16 << 10;

class RingGroup : public GroupBase {
 public:
  explicit RingGroup(std::unique_ptr<Wire> wire)
      : GroupBase(std::move(wire)),
        next_((rank() + 1) % size()),
        previous_((rank() + size() - 1) % size()) {}

  bool sums_in_rank_order() const override { return false; }
  absl::Status AllReduce(const void* in, void* out, size_t count, Element element,
                         Reduction reduction) override {
    const size_t bytes = count * SizeOf(element);
    if (size() == 1 || bytes == 0) return Copy(in, out, bytes);
    if (bytes <= kSmallBytes) return ReduceGathered(in, out, count, element, reduction);
    const absl::Status copied = Copy(in, out, bytes);
    if (!copied.ok()) return copied;
    absl::Status status = PassSums(static_cast<std::byte*>(out), count, element, reduction, 0);
    if (!status.ok()) return status;
    return PassResults(static_cast<std::byte*>(out), count, SizeOf(element));
  }

  absl::Status AllGather(std::span<const std::byte> in, std::span<std::byte> out) override {
    if (out.size() != in.size() * static_cast<size_t>(size())) return WrongSize(in, out);
    const absl::Status copied =
        Copy(in.data(), out.data() + in.size() * static_cast<size_t>(rank()), in.size());
    if (!copied.ok() || in.empty()) return copied;
    for (int step = 0; step + 1 < size(); ++step) {
      const auto sent = static_cast<size_t>(Turn(-step)),
                 got = static_cast<size_t>(Turn(-step - 1));
      const absl::Status status =
          PassOn(out.subspan(sent * in.size(), in.size()), out.subspan(got * in.size(), in.size()));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status ReduceScatter(const void* in, void* out, size_t count, Element element,
                             Reduction reduction) override {
    const size_t bytes = count * SizeOf(element);
    if (size() == 1 || bytes == 0) return Copy(in, out, bytes);
    work_.resize(bytes * static_cast<size_t>(size()));
    std::memcpy(work_.data(), in, work_.size());
    const absl::Status status =
        PassSums(work_.data(), count * static_cast<size_t>(size()), element, reduction, -1);
    if (!status.ok()) return status;
    return Copy(work_.data() + bytes * static_cast<size_t>(rank()), out, bytes);
  }

 private:
  int Turn(int by) const { return ((rank() + by) % size() + size()) % size(); }

  absl::Status PassOn(std::span<const std::byte> out, std::span<std::byte> in) {
    const Send send{next_, out};
    const Receive receive{previous_, in};
    return wire().Exchange({&send, 1}, {&receive, 1});
  }

  absl::Status ReduceGathered(const void* in, void* out, size_t count, Element element,
                              Reduction reduction) {
    const size_t bytes = count * SizeOf(element);
    work_.resize(bytes * static_cast<size_t>(size()));
    const absl::Status status =
        AllGather({static_cast<const std::byte*>(in), bytes}, {work_.data(), work_.size()});
    if (!status.ok()) return status;
    std::vector<const void*> parts;
    for (int peer = 0; peer < size(); ++peer) {
      parts.push_back(work_.data() + bytes * static_cast<size_t>(peer));
    }
    Reduce(parts, out, count, element, reduction);
    return absl::OkStatus();
  }

  struct Chunk {
    size_t begin = 0, count = 0;
  };
  Chunk ChunkOf(size_t count, int index) const {
    const auto n = static_cast<size_t>(size()), i = static_cast<size_t>(index);
    const size_t begin = count * i / n;
    return {begin, count * (i + 1) / n - begin};
  }

  // Each chunk goes round once and gathers everybody's part; `shift` 0 leaves the sum of chunk
  // rank + 1 here, -1 that of chunk rank.
  absl::Status PassSums(std::byte* data, size_t count, Element element, Reduction reduction,
                        int shift) {
    const size_t width = SizeOf(element);
    for (int step = 0; step + 1 < size(); ++step) {
      const Chunk out = ChunkOf(count, Turn(shift - step));
      const Chunk in = ChunkOf(count, Turn(shift - step - 1));
      scratch_.resize(in.count * width);
      const absl::Status status =
          PassOn({data + out.begin * width, out.count * width}, {scratch_.data(), scratch_.size()});
      if (!status.ok()) return status;
      std::byte* own = data + in.begin * width;
      const void* parts[] = {scratch_.data(), own};
      if (in.count > 0) Reduce(parts, own, in.count, element, reduction);
    }
    return absl::OkStatus();
  }

  absl::Status PassResults(std::byte* data, size_t count, size_t width) {
    for (int step = 0; step + 1 < size(); ++step) {
      const Chunk out = ChunkOf(count, Turn(1 - step)), in = ChunkOf(count, Turn(-step));
      const absl::Status status = PassOn({data + out.begin * width, out.count * width},
                                         {data + in.begin * width, in.count * width});
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  const int next_, previous_;
  std::vector<std::byte> work_, scratch_;
};

}  // namespace

std::unique_ptr<Group> MakeRingGroup(std::unique_ptr<Wire> wire) {
  return std::make_unique<RingGroup>(std::move(wire));
}

}  // namespace macrame::transport
