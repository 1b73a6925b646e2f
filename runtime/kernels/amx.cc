#include "runtime/kernels/amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns of its own headers here.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif

namespace macrame::runtime::kernels {

#if defined(__x86_64__) && defined(__linux__)
namespace {

#define MACRAME_AMX __attribute__((target("avx512f,avx512bw,avx512vl,fma,amx-tile,amx-int8")))

// What the processor reads to know the shapes of its tiles.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

bool AskForAmx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kTilesAndInt8 = 3U << 24;
  if ((d & kTilesAndInt8) != kTilesAndInt8) return false;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Tiles 0 to 3: sums (block 0 with high and low bytes, block 1); 4, 5: high and low bytes of the
// vectors; 6, 7: weights of the blocks.
MACRAME_AMX void ShapeTiles(size_t vectors, size_t columns) {
  TileShapes shapes;
  for (int tile = 0; tile < 6; ++tile) {
    shapes.rows[tile] = static_cast<uint8_t>(vectors);
    shapes.row_bytes[tile] = static_cast<uint16_t>(tile < 4 ? 64 : columns);
  }
  for (int tile = 6; tile < 8; ++tile) {
    shapes.rows[tile] = static_cast<uint8_t>(columns / 4);
    shapes.row_bytes[tile] = 64;
  }
  _tile_loadconfig(&shapes);
}

// Group g of the panel, as integers: out[block][high or low][vector][row].
MACRAME_AMX inline void MultiplyGroup(const AmxPanel& panel, const QuantizedForm& form, size_t m,
                                      size_t g, size_t tile_columns,
                                      int32_t (*out)[kAmxVectors][kAmxRows]) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const size_t begin = (panel.first_group + g) * form.group_size;
  for (size_t c = 0; c < form.group_size; c += tile_columns) {
    const size_t place = m * form.stride + begin + c;
    const size_t weights = (g * form.group_size + c) * kAmxRows;
    _tile_loadd(4, form.high + place, form.stride);
    _tile_loadd(6, panel.weights[0] + weights, 64);
    _tile_dpbsud(0, 4, 6);
    _tile_loadd(5, form.low + place, form.stride);
    _tile_dpbsud(1, 5, 6);
    _tile_loadd(7, panel.weights[1] + weights, 64);
    _tile_dpbsud(2, 4, 7);
    _tile_dpbsud(3, 5, 7);
  }
  // The next vectors' part of this group: tiles are read from too many places to be predicted.
  for (size_t i = 0; i < kAmxVectors; ++i) {
    const size_t place = (m + kAmxVectors + i) * form.stride + begin;
    _mm_prefetch(reinterpret_cast<const char*>(form.high + place), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(form.low + place), _MM_HINT_T0);
  }
  _tile_stored(0, out[0], 64);
  _tile_stored(1, out[1], 64);
  _tile_stored(2, out[2], 64);
  _tile_stored(3, out[3], 64);
}

// As AddGroup of the other loops, operation by operation.
template <bool kOffset>
MACRAME_AMX inline void AddGroups(const AmxPanel& panel, const QuantizedForm& form, size_t m,
                                  size_t count, size_t g,
                                  const int32_t (*dots)[kAmxVectors][kAmxRows], float* sums) {
  for (size_t block = 0; block < 2; ++block) {
    const __m512 scale = _mm512_loadu_ps(panel.scales[block] + g * kAmxRows);
    const __m512 bias = _mm512_loadu_ps(panel.biases[block] + g * kAmxRows);
    for (size_t i = 0; i < count; ++i) {
      const size_t index = (m + i) * panel.all_groups + panel.first_group + g;
      const __m512i high = _mm512_load_si512(dots[2 * block][i]);
      const __m512i low = _mm512_load_si512(dots[2 * block + 1][i]);
      __m512i total = _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
      if constexpr (kOffset) {
        total = _mm512_sub_epi32(total, _mm512_set1_epi32(panel.offset * form.integer_sums[index]));
      }
      const __m512 product =
          _mm512_mul_ps(_mm512_cvtepi32_ps(total), _mm512_set1_ps(form.scales[index]));
      float* sum = sums + (2 * i + block) * kAmxRows;
      _mm512_storeu_ps(sum, _mm512_fmadd_ps(bias, _mm512_set1_ps(form.sums[index]),
                                            _mm512_fmadd_ps(product, scale, _mm512_loadu_ps(sum))));
    }
  }
}

}  // namespace

bool AmxUsable() {
  static const bool usable = AskForAmx();
  return usable;
}

MACRAME_AMX void MultiplyPanelAmx(const AmxPanel& panel, const QuantizedForm& form, size_t m,
                                  size_t count, float* sums) {
  const size_t tile_columns = std::min<size_t>(form.group_size, 64);
  ShapeTiles(count, tile_columns);
  // Two, so that one group's integers are added up while the next one's are made.
  alignas(64) int32_t dots[2][4][kAmxVectors][kAmxRows];
  MultiplyGroup(panel, form, m, 0, tile_columns, dots[0]);
  for (size_t g = 0; g < panel.groups; ++g) {
    if (g + 1 < panel.groups) {
      MultiplyGroup(panel, form, m, g + 1, tile_columns, dots[(g + 1) % 2]);
    }
    if (panel.offset != 0) {
      AddGroups<true>(panel, form, m, count, g, dots[g % 2], sums);
    } else {
      AddGroups<false>(panel, form, m, count, g, dots[g % 2], sums);
    }
  }
}

MACRAME_AMX void ReleaseAmx() { _tile_release(); }

#else

bool AmxUsable() { return false; }
void MultiplyPanelAmx(const AmxPanel&, const QuantizedForm&, size_t, size_t, float*) {}
void ReleaseAmx() {}

#endif

}  // namespace macrame::runtime::kernels
