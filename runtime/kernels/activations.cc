#include "runtime/kernels/activations.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "runtime/kernels/highway_targets.h"
#include "runtime/kernels/narrow_weights.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/activations.cc"
#include "hwy/foreach_target.h"  // compiles this file once for each instruction set
#include "hwy/highway.h"
#include "runtime/kernels/integer_dots.inc"

HWY_BEFORE_NAMESPACE();
namespace macrame::runtime::kernels {
namespace HWY_NAMESPACE {

// Where the planes of one vector are, and its groups' numbers.
struct VectorPlaces {
  int8_t* high;
  int8_t* low;
  float* scales;
  float* sums;
  int32_t* integer_sums;
};

// q of one group, 16 bits each; returns its scale. NaN and infinity make the scale one too.
HWY_INLINE float QuantizeGroup(const float* x, size_t group, int16_t* q) {
  const F32 d;
  const I32 di;
  const size_t lanes = hn::Lanes(d);
  // As integers, so that a NaN is larger than any number.
  auto largest = hn::Zero(di);
  for (size_t i = 0; i < group; i += lanes) {
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(hn::LoadU(d, x + i))));
  }
  const float most = hn::GetLane(hn::BitCast(d, hn::MaxOfLanes(di, largest)));
  if (most < 1e-30F) {
    std::memset(q, 0, group * sizeof(int16_t));
    return 0.0F;
  }
  const hn::Rebind<int16_t, F32> d16;
  const auto inverse = hn::Set(d, 32639.0F / most);
  for (size_t i = 0; i < group; i += lanes) {
    const auto rounded = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), inverse));
    hn::StoreU(hn::DemoteTo(d16, rounded), d16, q + i);
  }
  return most / 32639.0F;
}

// 16 columns of q to where the kernels of this target look for them.
template <bool kEvenFirst>
HWY_INLINE void PlaceColumns(const int16_t* q, size_t column, const VectorPlaces& to) {
  const hn::FixedTag<int16_t, 8> d16;
  const hn::FixedTag<int8_t, 8> d8;
  const hn::FixedTag<int8_t, 16> d8x2;
  const auto first = hn::LoadU(d16, q);
  const auto second = hn::LoadU(d16, q + 8);
  if constexpr (kByteDots) {
    HWY_ALIGN static constexpr int8_t kOrder[16] = {0, 2,  4,  6,  1, 3,  5,  7,
                                                    8, 10, 12, 14, 9, 11, 13, 15};
    const auto half = hn::Set(d16, 128);
    const auto high0 = hn::ShiftRight<8>(hn::Add(first, half));
    const auto high1 = hn::ShiftRight<8>(hn::Add(second, half));
    const auto low0 = hn::Sub(first, hn::ShiftLeft<8>(high0));
    const auto low1 = hn::Sub(second, hn::ShiftLeft<8>(high1));
    auto high = hn::Combine(d8x2, hn::DemoteTo(d8, high1), hn::DemoteTo(d8, high0));
    auto low = hn::Combine(d8x2, hn::DemoteTo(d8, low1), hn::DemoteTo(d8, low0));
    if constexpr (kEvenFirst) {
      const auto order = hn::Load(d8x2, kOrder);
      high = hn::TableLookupBytes(high, order);
      low = hn::TableLookupBytes(low, order);
    }
    hn::StoreU(high, d8x2, to.high + column);
    hn::StoreU(low, d8x2, to.low + column);
  } else {
    // The even bytes of four and the odd ones are multiplied apart.
    HWY_ALIGN static constexpr int8_t kPlain[16] = {0, 1, 4,  5,  2,  3,  6,  7,
                                                    8, 9, 12, 13, 10, 11, 14, 15};
    HWY_ALIGN static constexpr int8_t kEven[16] = {0, 1, 8,  9,  4, 5, 12, 13,
                                                   2, 3, 10, 11, 6, 7, 14, 15};
    const auto order = hn::Load(d8x2, kEvenFirst ? kEven : kPlain);
    const auto turn = [&](auto v)
                          HWY_ATTR { return hn::TableLookupBytes(hn::BitCast(d8x2, v), order); };
    hn::StoreU(turn(first), d8x2, to.low + 2 * column);
    hn::StoreU(turn(second), d8x2, to.low + 2 * column + 16);
  }
}

template <bool kEvenFirst>
HWY_INLINE void QuantizeVector(const float* x, size_t columns, size_t group,
                               const VectorPlaces& to) {
  int16_t q[128];
  for (size_t g = 0; g * group < columns; ++g) {
    const float scale = QuantizeGroup(x + g * group, group, q);
    int32_t sum = 0;
    for (size_t i = 0; i < group; ++i) sum += q[i];
    to.scales[g] = scale;
    to.integer_sums[g] = sum;
    to.sums[g] = scale * static_cast<float>(sum);
    for (size_t i = 0; i < group; i += 16) PlaceColumns<kEvenFirst>(q + i, g * group + i, to);
  }
}

void QuantizeImpl(const float* x, size_t begin, size_t end, size_t columns,
                  const QuantizedForm& form) {
  const size_t groups = columns / form.group_size;
  for (size_t m = begin; m < end; ++m) {
    const VectorPlaces to = {const_cast<int8_t*>(form.high) + m * form.stride,
                             const_cast<int8_t*>(form.low) + m * form.stride,
                             const_cast<float*>(form.scales) + m * groups,
                             const_cast<float*>(form.sums) + m * groups,
                             const_cast<int32_t*>(form.integer_sums) + m * groups};
    if (form.bits == 4) {
      QuantizeVector<true>(x + m * columns, columns, form.group_size, to);
    } else {
      QuantizeVector<false>(x + m * columns, columns, form.group_size, to);
    }
  }
}

size_t PlanesImpl() { return kByteDots ? 2 : 1; }

}  // namespace HWY_NAMESPACE
}  // namespace macrame::runtime::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macrame::runtime::kernels {
namespace {

HWY_EXPORT(QuantizeImpl);
HWY_EXPORT(PlanesImpl);

constexpr size_t kAlignment = 64;
// Behind each vector, so that whole runs can be read and vectors don't share places in a cache.
constexpr size_t kVectorPadding = 192;

}  // namespace

void AlignedBuffer::Free::operator()(uint8_t* memory) const {
  ::operator delete[](memory, std::align_val_t{kAlignment});
}

uint8_t* AlignedBuffer::Reserve(size_t bytes) {
  if (bytes > bytes_) {
    data_.reset();
    bytes_ = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    data_.reset(static_cast<uint8_t*>(::operator new[](bytes_, std::align_val_t{kAlignment})));
    std::memset(data_.get(), 0, bytes_);
  }
  return data_.get();
}

void Activations::Set(const float* x, size_t count, size_t columns) {
  x_ = x;
  count_ = count;
  columns_ = columns;
  for (const auto& slot : slots_) slot->valid = false;
}

size_t Activations::memory_bytes() const {
  size_t bytes = 0;
  for (const auto& slot : slots_) bytes += slot->memory.bytes();
  return bytes;
}

const QuantizedForm& Activations::FormFor(ThreadPool& pool, const MatrixView& matrix) {
  // 6 and 8 bits have their columns in the same order.
  const int bits = LoopBits(matrix.bits) == 4 ? 4 : 8;
  const auto group = static_cast<size_t>(matrix.group_size);
  const auto is_it = [&](const std::unique_ptr<Slot>& slot) {
    return slot->form.bits == bits && slot->form.group_size == group;
  };
  auto found = std::find_if(slots_.begin(), slots_.end(), is_it);
  if (found == slots_.end()) {
    slots_.push_back(std::make_unique<Slot>());
    found = slots_.end() - 1;
  }
  Slot& slot = **found;
  if (slot.valid) return slot.form;
  const size_t planes = HWY_DYNAMIC_DISPATCH(PlanesImpl)();
  const size_t element = planes == 2 ? 1 : 2;
  const size_t stride = (columns_ * element + 63) / 64 * 64 + kVectorPadding;
  const size_t plane = stride * count_;
  const size_t floats = columns_ / group * count_ * 4;
  uint8_t* memory = slot.memory.Reserve(planes * plane + 3 * floats);
  slot.form = {bits,
               group,
               stride,
               reinterpret_cast<const int8_t*>(memory),
               reinterpret_cast<const int8_t*>(memory + (planes - 1) * plane),
               reinterpret_cast<const float*>(memory + planes * plane),
               reinterpret_cast<const float*>(memory + planes * plane + floats),
               reinterpret_cast<const int32_t*>(memory + planes * plane + 2 * floats)};
  const auto work = [&](int worker, int workers) {
    const RowRange part = RowsOfWorker(count_, 1, worker, workers);
    HWY_DYNAMIC_DISPATCH(QuantizeImpl)(x_, part.begin, part.end, columns_, slot.form);
  };
  if (count_ < 8) {  // sooner done than told to others
    work(0, 1);
  } else {
    pool.Run(work);
  }
  slot.valid = true;
  return slot.form;
}

}  // namespace macrame::runtime::kernels
#endif  // HWY_ONCE
