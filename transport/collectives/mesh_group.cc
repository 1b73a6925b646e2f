// Collectives where every rank has a way of its own to every other.

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "transport/collectives/group_base.h"
#include "transport/collectives/reduce.h"

namespace macrame::transport {
namespace {

// Up to here everybody sends everything to everybody: one exchange instead of two.
constexpr size_t kSmallBytes = 64 << 10;
// Larger messages pass in pieces of this size a rank: sums of one piece travel with parts of the
// next, and what waits for being added stays in the cache.
constexpr size_t kPieceBytes = 256 << 10;

class MeshGroup : public GroupBase {
 public:
  explicit MeshGroup(std::unique_ptr<Wire> wire) : GroupBase(std::move(wire)) {}

  bool sums_in_rank_order() const override { return true; }
  absl::Status AllReduce(const void* in, void* out, size_t count, Element element,
                         Reduction reduction) override {
    const size_t bytes = count * SizeOf(element);
    if (size() == 1 || bytes == 0) return Copy(in, out, bytes);
    return bytes <= kSmallBytes ? ReduceAtOnce(in, out, count, element, reduction)
                                : ReduceInPieces(in, out, count, element, reduction);
  }

  absl::Status AllGather(std::span<const std::byte> in, std::span<std::byte> out) override {
    if (out.size() != in.size() * static_cast<size_t>(size())) return WrongSize(in, out);
    std::byte* own = out.data() + in.size() * static_cast<size_t>(rank());
    const absl::Status copied = Copy(in.data(), own, in.size());
    if (size() == 1 || in.empty()) return copied;
    sends_.clear();
    receives_.clear();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      sends_.push_back({peer, {own, in.size()}});
      receives_.push_back({peer, out.subspan(in.size() * static_cast<size_t>(peer), in.size())});
    }
    return wire().Exchange(sends_, receives_);
  }

  absl::Status ReduceScatter(const void* in, void* out, size_t count, Element element,
                             Reduction reduction) override {
    const size_t bytes = count * SizeOf(element);
    const auto* parts = static_cast<const std::byte*>(in);
    if (size() == 1 || bytes == 0) return Copy(in, out, bytes);
    scratch_.resize(bytes * static_cast<size_t>(size() - 1));
    sends_.clear();
    receives_.clear();
    std::vector<const void*> sources(static_cast<size_t>(size()));
    std::byte* free = scratch_.data();
    for (int peer = 0; peer < size(); ++peer) {
      const auto at = static_cast<size_t>(peer);
      if (peer == rank()) {
        sources[at] = parts + at * bytes;
        continue;
      }
      sends_.push_back({peer, {parts + at * bytes, bytes}});
      receives_.push_back({peer, {free, bytes}});
      sources[at] = free;
      free += bytes;
    }
    const absl::Status status = wire().Exchange(sends_, receives_);
    if (!status.ok()) return status;
    Reduce(sources, out, count, element, reduction);
    return absl::OkStatus();
  }

 private:
  absl::Status ReduceAtOnce(const void* in, void* out, size_t count, Element element,
                            Reduction reduction) {
    const size_t bytes = count * SizeOf(element);
    const std::span<const std::byte> own(static_cast<const std::byte*>(in), bytes);
    scratch_.resize(bytes * static_cast<size_t>(size() - 1));
    sends_.clear();
    receives_.clear();
    sources_.assign(static_cast<size_t>(size()), in);
    std::byte* free = scratch_.data();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      sends_.push_back({peer, own});
      receives_.push_back({peer, {free, bytes}});
      sources_[static_cast<size_t>(peer)] = free;
      free += bytes;
    }
    const absl::Status status = wire().Exchange(sends_, receives_);
    if (!status.ok()) return status;
    Reduce(sources_, out, count, element, reduction);
    return absl::OkStatus();
  }

  struct Piece {
    size_t begin = 0, count = 0;  // elements
  };

  // Piece `index` of chunk `chunk`: a chunk is what one rank sums, its pieces pass one after
  // another.
  Piece PieceOf(size_t count, size_t chunk, size_t index, size_t piece_count) const {
    const auto n = static_cast<size_t>(size());
    const size_t chunk_begin = count * chunk / n, chunk_end = count * (chunk + 1) / n;
    const size_t length = chunk_end - chunk_begin;
    const size_t begin = chunk_begin + length * index / piece_count;
    return {begin, chunk_begin + length * (index + 1) / piece_count - begin};
  }

  // Reduce-scatter of piece k and all-gather of piece k - 1 in one exchange.
  absl::Status ReduceInPieces(const void* in, void* out, size_t count, Element element,
                              Reduction reduction) {
    const size_t width = SizeOf(element);
    const auto n = static_cast<size_t>(size()), own = static_cast<size_t>(rank());
    const size_t chunk_bytes = (count / n + 1) * width;
    const size_t pieces = std::max<size_t>(1, (chunk_bytes + kPieceBytes - 1) / kPieceBytes);
    const size_t piece_bytes_max = chunk_bytes / pieces + 2 * width;
    scratch_.resize(piece_bytes_max * (n - 1));
    const auto* source = static_cast<const std::byte*>(in);
    auto* target = static_cast<std::byte*>(out);
    for (size_t k = 0; k <= pieces; ++k) {
      sends_.clear();
      receives_.clear();
      std::byte* free = scratch_.data();
      for (size_t peer = 0; peer < n; ++peer) {
        if (peer == own) continue;
        const int to = static_cast<int>(peer);
        if (k < pieces) {
          const Piece theirs = PieceOf(count, peer, k, pieces);
          const Piece mine = PieceOf(count, own, k, pieces);
          sends_.push_back({to, {source + theirs.begin * width, theirs.count * width}});
          receives_.push_back({to, {free, mine.count * width}});
          free += mine.count * width;
        }
        if (k > 0) {
          const Piece theirs = PieceOf(count, peer, k - 1, pieces);
          const Piece mine = PieceOf(count, own, k - 1, pieces);
          sends_.push_back({to, {target + mine.begin * width, mine.count * width}});
          receives_.push_back({to, {target + theirs.begin * width, theirs.count * width}});
        }
      }
      const absl::Status status = wire().Exchange(sends_, receives_);
      if (!status.ok()) return status;
      if (k < pieces) SumPiece(source, target, PieceOf(count, own, k, pieces), element, reduction);
    }
    return absl::OkStatus();
  }

  void SumPiece(const std::byte* source, std::byte* target, const Piece& piece, Element element,
                Reduction reduction) {
    const size_t width = SizeOf(element);
    sources_.clear();
    const std::byte* next = scratch_.data();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) {
        sources_.push_back(source + piece.begin * width);
      } else {
        sources_.push_back(next);
        next += piece.count * width;
      }
    }
    Reduce(sources_, target + piece.begin * width, piece.count, element, reduction);
  }

  std::vector<std::byte> scratch_;
  std::vector<const void*> sources_;
  std::vector<Send> sends_;
  std::vector<Receive> receives_;
};

}  // namespace

std::unique_ptr<Group> MakeMeshGroup(std::unique_ptr<Wire> wire) {
  return std::make_unique<MeshGroup>(std::move(wire));
}

}  // namespace macrame::transport
