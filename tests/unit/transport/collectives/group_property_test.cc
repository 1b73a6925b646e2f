// Collectives against plain loops, for drawn worlds, shapes and types: every failure repeats with
// the seed that it names.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tests/unit/transport/collectives/memory_ranks.h"
#include "transport/collectives/group.h"

namespace macrame::transport {
namespace {

using Bytes = std::vector<std::byte>;

constexpr Element kIntegers[] = {Element::kUint8,  Element::kInt8,   Element::kUint16,
                                 Element::kInt16,  Element::kUint32, Element::kInt32,
                                 Element::kUint64, Element::kInt64};
constexpr Element kFloats[] = {Element::kFloat16, Element::kBfloat16, Element::kFloat32,
                               Element::kFloat64};
constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kMax, Reduction::kMin};

struct Draw {
  int ranks;
  bool is_ring;
  size_t count;
  bool in_place;
  Reduction reduction;
};

std::string Describe(uint32_t seed, const Draw& draw, Element element) {
  return absl::StrCat("seed ", seed, ": ", draw.ranks, " ranks, ", draw.is_ring ? "ring" : "mesh",
                      ", ", draw.count, " of element ", static_cast<int>(element),
                      draw.in_place ? ", in place" : "", ", reduction ",
                      static_cast<int>(draw.reduction));
}

// Sizes at which something changes: none, fewer than ranks, around the limits of small messages
// (16 KiB in a ring, 64 KiB in a mesh), and of several pieces.
Draw DrawOne(std::mt19937& random, Element element) {
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  Draw draw;
  draw.ranks = 1 + static_cast<int>(below(7));
  draw.is_ring = below(2) == 0;
  draw.in_place = below(2) == 0;
  draw.reduction = kReductions[below(3)];
  const size_t width = SizeOf(element);
  const size_t limits[] = {0,
                           1,
                           static_cast<size_t>(draw.ranks) - 1,
                           static_cast<size_t>(draw.ranks) + 1,
                           (16 << 10) / width,
                           (64 << 10) / width,
                           (64 << 10) / width * 3 + 7,
                           (256 << 10) / width * static_cast<size_t>(draw.ranks) + below(100)};
  draw.count = limits[below(std::size(limits))] + below(3);
  return draw;
}

// What each rank gets of an all-reduce of its input.
std::vector<Bytes> AllReduceEverywhere(const Draw& draw, Element element,
                                       const std::vector<Bytes>& inputs) {
  std::vector<Bytes> results(inputs.size());
  RunInMemory(draw.ranks, draw.is_ring, [&](int rank, std::unique_ptr<Wire> wire) {
    const auto group = MakeGroup(std::move(wire), draw.is_ring ? Topology::kRing : Topology::kMesh);
    const Bytes& in = inputs[static_cast<size_t>(rank)];
    Bytes out = draw.in_place ? in : Bytes(in.size());
    const void* from = draw.in_place ? out.data() : in.data();
    const absl::Status status =
        group->AllReduce(from, out.data(), draw.count, element, draw.reduction);
    EXPECT_TRUE(status.ok()) << status;
    results[static_cast<size_t>(rank)] = std::move(out);
  });
  return results;
}

// ---- integers: exactly, modulo their width

template <typename T>
T ReducePlainly(const std::vector<Bytes>& inputs, size_t at, Reduction reduction) {
  std::vector<T> values;
  for (const Bytes& input : inputs) {
    T value;
    std::memcpy(&value, input.data() + at * sizeof(T), sizeof(T));
    values.push_back(value);
  }
  if (reduction == Reduction::kMax) return *std::max_element(values.begin(), values.end());
  if (reduction == Reduction::kMin) return *std::min_element(values.begin(), values.end());
  uint64_t sum = 0;
  for (const T value : values) sum += static_cast<uint64_t>(value);
  return static_cast<T>(sum);
}

template <typename T>
void ExpectPlain(const std::vector<Bytes>& inputs, const Bytes& result, const Draw& draw) {
  for (size_t i = 0; i < draw.count; ++i) {
    T value;
    std::memcpy(&value, result.data() + i * sizeof(T), sizeof(T));
    ASSERT_EQ(value, ReducePlainly<T>(inputs, i, draw.reduction)) << "element " << i;
  }
}

void ExpectPlainIntegers(Element element, const std::vector<Bytes>& inputs, const Bytes& result,
                         const Draw& draw) {
  switch (element) {
    case Element::kUint8:
      return ExpectPlain<uint8_t>(inputs, result, draw);
    case Element::kInt8:
      return ExpectPlain<int8_t>(inputs, result, draw);
    case Element::kUint16:
      return ExpectPlain<uint16_t>(inputs, result, draw);
    case Element::kInt16:
      return ExpectPlain<int16_t>(inputs, result, draw);
    case Element::kUint32:
      return ExpectPlain<uint32_t>(inputs, result, draw);
    case Element::kInt32:
      return ExpectPlain<int32_t>(inputs, result, draw);
    case Element::kUint64:
      return ExpectPlain<uint64_t>(inputs, result, draw);
    default:
      return ExpectPlain<int64_t>(inputs, result, draw);
  }
}

TEST(GroupProperty, IntegersAreReducedExactlyOnEveryRank) {
  for (uint32_t seed = 0; seed < 96; ++seed) {
    std::mt19937 random(seed);
    const Element element = kIntegers[seed % std::size(kIntegers)];
    const Draw draw = DrawOne(random, element);
    SCOPED_TRACE(Describe(seed, draw, element));
    std::vector<Bytes> inputs(static_cast<size_t>(draw.ranks), Bytes(draw.count * SizeOf(element)));
    for (Bytes& input : inputs) {
      for (std::byte& byte : input) byte = static_cast<std::byte>(random());
    }
    for (const Bytes& result : AllReduceEverywhere(draw, element, inputs)) {
      ExpectPlainIntegers(element, inputs, result, draw);
      if (HasFatalFailure()) return;
    }
  }
}

// ---- floats: as near as their precision allows, and the same bits on every rank

// Bits to a number, written apart from what the product does: by the definition of the formats.
double Number(Element element, const std::byte* at) {
  if (element == Element::kFloat32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return static_cast<double>(value);
  }
  if (element == Element::kFloat64) {
    double value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  const int mantissa_bits = element == Element::kFloat16 ? 10 : 7;
  const int bias = element == Element::kFloat16 ? 15 : 127;
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

// Numbers of either sign between 2^-6 and 4, as bits.
void FillWithNumbers(Element element, std::mt19937& random, Bytes& bytes) {
  const size_t width = SizeOf(element);
  for (size_t at = 0; at < bytes.size(); at += width) {
    const double value = std::ldexp(1.0 + static_cast<double>(random() % 128) / 128,
                                    static_cast<int>(random() % 8) - 6) *
                         (random() % 2 == 0 ? 1 : -1);
    if (element == Element::kFloat64) {
      std::memcpy(&bytes[at], &value, width);
    } else if (element == Element::kFloat32) {
      const float narrow = static_cast<float>(value);
      std::memcpy(&bytes[at], &narrow, width);
    } else if (element == Element::kBfloat16) {
      const auto bits =
          static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16);
      std::memcpy(&bytes[at], &bits, width);
    } else {
      const uint64_t wide = std::bit_cast<uint64_t>(value);
      const auto exponent = static_cast<uint16_t>((wide >> 52 & 0x7ff) - 1023 + 15);
      const auto bits =
          static_cast<uint16_t>((wide >> 63) << 15 | exponent << 10 | (wide >> 42 & 0x3ff));
      std::memcpy(&bytes[at], &bits, width);
    }
  }
}

// Half a unit of the last place of a number below `limit`.
double Rounding(Element element, double limit) {
  const int bits = element == Element::kFloat16    ? 10
                   : element == Element::kBfloat16 ? 7
                   : element == Element::kFloat32  ? 23
                                                   : 52;
  return std::ldexp(limit, -bits - 1);
}

void ExpectNear(Element element, const std::vector<Bytes>& inputs, const Bytes& result,
                const Draw& draw) {
  const size_t width = SizeOf(element);
  for (size_t i = 0; i < draw.count; ++i) {
    double wanted = Number(element, &inputs[0][i * width]), magnitude = std::fabs(wanted);
    for (size_t rank = 1; rank < inputs.size(); ++rank) {
      const double value = Number(element, &inputs[rank][i * width]);
      magnitude += std::fabs(value);
      wanted = draw.reduction == Reduction::kSum   ? wanted + value
               : draw.reduction == Reduction::kMax ? std::max(wanted, value)
                                                   : std::min(wanted, value);
    }
    // A mesh rounds a half once; a ring once a hop.
    const bool is_exact = draw.reduction != Reduction::kSum || inputs.size() == 1;
    const double allowed =
        is_exact ? 0 : Rounding(element, magnitude) * static_cast<double>(inputs.size());
    ASSERT_NEAR(Number(element, &result[i * width]), wanted, allowed) << "element " << i;
  }
}

TEST(GroupProperty, FloatsAreReducedWithinTheirPrecisionAndToTheSameBits) {
  for (uint32_t seed = 0; seed < 80; ++seed) {
    std::mt19937 random(seed + 1000);
    const Element element = kFloats[seed % std::size(kFloats)];
    const Draw draw = DrawOne(random, element);
    SCOPED_TRACE(Describe(seed, draw, element));
    std::vector<Bytes> inputs(static_cast<size_t>(draw.ranks), Bytes(draw.count * SizeOf(element)));
    for (Bytes& input : inputs) FillWithNumbers(element, random, input);
    const std::vector<Bytes> results = AllReduceEverywhere(draw, element, inputs);
    ExpectNear(element, inputs, results[0], draw);
    if (HasFatalFailure()) return;
    for (const Bytes& result : results) {
      ASSERT_EQ(std::memcmp(result.data(), results[0].data(), result.size()), 0)
          << "ranks that differ in a bit drift apart";
    }
  }
}

// What a mesh promises (sums_in_rank_order): the bits of ((a + b) + c) + d at any size, so that an
// answer does not change with the batch that it stands in.
TEST(GroupProperty, AMeshAddsInRankOrderAtEverySize) {
  for (const size_t count : {size_t{5}, size_t{16384}, size_t{16385}, size_t{300001}}) {
    constexpr int kRanks = 4;
    std::mt19937 random(static_cast<uint32_t>(count));
    std::vector<Bytes> inputs(kRanks, Bytes(count * sizeof(float)));
    for (Bytes& input : inputs) {
      for (size_t i = 0; i < count; ++i) {
        const float value = std::ldexp(static_cast<float>(random() % 16777216),
                                       static_cast<int>(random() % 40) - 40);
        std::memcpy(&input[i * sizeof(float)], &value, sizeof(value));
      }
    }
    const auto results = AllReduceEverywhere({kRanks, false, count, false, Reduction::kSum},
                                             Element::kFloat32, inputs);
    for (size_t i = 0; i < count; ++i) {
      float wanted = 0, got = 0;
      for (size_t rank = 0; rank < kRanks; ++rank) {
        float value;
        std::memcpy(&value, &inputs[rank][i * sizeof(float)], sizeof(value));
        wanted = rank == 0 ? value : wanted + value;
      }
      std::memcpy(&got, &results[2][i * sizeof(float)], sizeof(got));
      ASSERT_EQ(got, wanted) << "element " << i << " of " << count;
    }
  }
}

// ---- the other collectives

TEST(GroupProperty, AScatteredSumIsThePartOfTheWholeSum) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed + 2000);
    Draw draw = DrawOne(random, Element::kInt32);
    draw.reduction = kReductions[seed % 3];
    SCOPED_TRACE(Describe(seed, draw, Element::kInt32));
    const auto ranks = static_cast<size_t>(draw.ranks);
    const size_t part = draw.count % 20000, part_bytes = part * sizeof(int32_t);
    std::vector<Bytes> inputs(ranks, Bytes(part_bytes * ranks)), kept;
    for (Bytes& input : inputs) {
      for (std::byte& byte : input) byte = static_cast<std::byte>(random());
    }
    kept = inputs;
    std::vector<Bytes> results(ranks, Bytes(part_bytes));
    RunInMemory(draw.ranks, draw.is_ring, [&](int rank, std::unique_ptr<Wire> wire) {
      const auto at = static_cast<size_t>(rank);
      const auto group =
          MakeGroup(std::move(wire), draw.is_ring ? Topology::kRing : Topology::kMesh);
      EXPECT_TRUE(group
                      ->ReduceScatter(inputs[at].data(), results[at].data(), part, Element::kInt32,
                                      draw.reduction)
                      .ok());
    });
    EXPECT_EQ(inputs, kept) << "what a rank gives is only read";
    for (size_t rank = 0; rank < ranks; ++rank) {
      for (size_t i = 0; i < part; ++i) {
        int32_t got;
        std::memcpy(&got, &results[rank][i * sizeof(got)], sizeof(got));
        ASSERT_EQ(got, ReducePlainly<int32_t>(inputs, rank * part + i, draw.reduction))
            << "rank " << rank << ", element " << i;
      }
    }
  }
}

TEST(GroupProperty, GathersEverySize) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed + 3000);
    const Draw draw = DrawOne(random, Element::kUint8);
    SCOPED_TRACE(Describe(seed, draw, Element::kUint8));
    const auto ranks = static_cast<size_t>(draw.ranks);
    std::vector<Bytes> inputs(ranks, Bytes(draw.count % 70000)), gathered(ranks);
    for (size_t rank = 0; rank < ranks; ++rank) {
      for (std::byte& byte : inputs[rank]) byte = static_cast<std::byte>(random());
    }
    Bytes all;
    for (const Bytes& input : inputs) all.insert(all.end(), input.begin(), input.end());
    RunInMemory(draw.ranks, draw.is_ring, [&](int rank, std::unique_ptr<Wire> wire) {
      const auto at = static_cast<size_t>(rank);
      const auto group =
          MakeGroup(std::move(wire), draw.is_ring ? Topology::kRing : Topology::kMesh);
      gathered[at].resize(all.size());
      std::span<const std::byte> in = inputs[at];
      if (draw.in_place) {
        // The own part stands where it is gathered to.
        std::copy(in.begin(), in.end(), gathered[at].begin() + at * in.size());
        in = std::span(gathered[at]).subspan(at * in.size(), in.size());
      }
      EXPECT_TRUE(group->AllGather(in, gathered[at]).ok());
    });
    for (size_t rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(gathered[rank], all) << "rank " << rank;
    }
  }
}

// ---- what it costs, and how it fails

TEST(GroupCost, ALargeSumSendsNoMoreThanTwiceWhatARankHas) {
  for (const bool is_ring : {false, true}) {
    for (const int ranks : {2, 3, 6}) {
      constexpr size_t kCount = 400000;
      std::vector<uint64_t> sent(static_cast<size_t>(ranks));
      RunInMemory(ranks, is_ring, [&](int rank, std::unique_ptr<Wire> wire) {
        const auto group = MakeGroup(std::move(wire), is_ring ? Topology::kRing : Topology::kMesh);
        std::vector<float> values(kCount, 1.0f);
        EXPECT_TRUE(group
                        ->AllReduce(values.data(), values.data(), kCount, Element::kFloat32,
                                    Reduction::kSum)
                        .ok());
        sent[static_cast<size_t>(rank)] = group->stats().bytes_sent;
      });
      const double all = kCount * sizeof(float);
      const double best = 2 * all * (ranks - 1) / ranks;
      for (const uint64_t bytes : sent) {
        EXPECT_NEAR(static_cast<double>(bytes), best, 64.0 * ranks)
            << (is_ring ? "ring of " : "mesh of ") << ranks;
      }
    }
  }
}

TEST(GroupCost, ASmallSumOfAMeshIsOneExchange) {
  RunInMemory(5, false, [&](int, std::unique_ptr<Wire> wire) {
    const auto group = MakeGroup(std::move(wire), Topology::kMesh);
    std::vector<uint16_t> values(32 << 10, 0);  // 64 KiB: the last small size
    EXPECT_TRUE(group
                    ->AllReduce(values.data(), values.data(), values.size(), Element::kFloat16,
                                Reduction::kSum)
                    .ok());
    EXPECT_EQ(group->stats().exchanges, 1u);
  });
}

TEST(GroupFailure, TheWiresOwnWordsComeOutOfEveryCollective) {
  using Call = std::function<absl::Status(Group&)>;
  static std::vector<float> big(100000, 1.0f);
  const std::vector<std::pair<const char*, Call>> calls = {
      {"small sum",
       [](Group& group) {
         float value = 1;
         return group.AllReduce(&value, &value, 1, Element::kFloat32, Reduction::kSum);
       }},
      {"large sum",
       [](Group& group) {
         std::vector<float> values(big);
         return group.AllReduce(values.data(), values.data(), values.size(), Element::kFloat32,
                                Reduction::kSum);
       }},
      {"scatter",
       [](Group& group) {
         std::vector<float> values(1000 * static_cast<size_t>(group.size()), 1), own(1000);
         return group.ReduceScatter(values.data(), own.data(), 1000, Element::kFloat32,
                                    Reduction::kSum);
       }},
      {"gather",
       [](Group& group) {
         Bytes in(100), out(100 * static_cast<size_t>(group.size()));
         return group.AllGather(in, out);
       }},
  };
  for (const bool is_ring : {false, true}) {
    for (const auto& [name, call] : calls) {
      SCOPED_TRACE(absl::StrCat(name, is_ring ? " in a ring" : " in a mesh"));
      RunInMemory(
          3, is_ring,
          [&](int rank, std::unique_ptr<Wire> wire) {
            const auto group =
                MakeGroup(std::move(wire), is_ring ? Topology::kRing : Topology::kMesh);
            const absl::Status status = call(*group);
            if (rank != 0) return;
            EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
            EXPECT_NE(status.message().find("rank 1 (10.0.0.2:7000) is gone"),
                      absl::string_view::npos)
                << status;
          },
          /*failing_rank=*/0, /*fails_at=*/0);
    }
  }
}

// The second of several exchanges fails: what was there before does not pass for a result.
TEST(GroupFailure, ALossInTheMiddleOfALargeSumIsAnError) {
  for (const bool is_ring : {false, true}) {
    for (const int fails_at : {1, 2}) {
      RunInMemory(
          4, is_ring,
          [&](int, std::unique_ptr<Wire> wire) {
            const auto group =
                MakeGroup(std::move(wire), is_ring ? Topology::kRing : Topology::kMesh);
            std::vector<float> values(600000, 1.0f);
            EXPECT_FALSE(group
                             ->AllReduce(values.data(), values.data(), values.size(),
                                         Element::kFloat32, Reduction::kSum)
                             .ok());
          },
          /*failing_rank=*/2, fails_at);
    }
  }
}

TEST(GroupFailure, ARingSaysWhichWayIsMissing) {
  RunInMemory(5, true, [&](int rank, std::unique_ptr<Wire> wire) {
    const auto group = MakeGroup(std::move(wire), Topology::kRing);
    const int across = (rank + 2) % 5;
    std::byte byte{};
    for (const absl::Status& status :
         {group->SendTo({&byte, 1}, across), group->ReceiveFrom({&byte, 1}, across),
          group->SendAndReceive({&byte, 1}, (rank + 1) % 5, {&byte, 1}, across)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find(absl::StrCat("rank ", rank, " has no link to rank ", across)),
                absl::string_view::npos)
          << status;
    }
  });
}

TEST(GroupFailure, AGatherOfAnotherSizeSendsNothing) {
  RunInMemory(3, false, [&](int, std::unique_ptr<Wire> wire) {
    const auto group = MakeGroup(std::move(wire), Topology::kMesh);
    Bytes in(10), out(29);
    const absl::Status status = group->AllGather(in, out);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("10 bytes of each of 3 ranks do not fill 29"),
              absl::string_view::npos)
        << status;
    EXPECT_EQ(group->stats().bytes_sent, 0u);
  });
}

}  // namespace
}  // namespace macrame::transport
