// What matmul_test and attention_test hold, for the one instruction set that this program was
// compiled for; `neon` beside it builds it for 64 bit ARM. Ends with 0 when all is right.

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/unit/runtime/kernels/attention_world.h"
#include "tests/unit/runtime/kernels/matrices.h"

namespace macrame::runtime::kernels {
namespace {

// Whether products are right, and the same bits alone and together.
bool Check(const Storage& storage, Scalar type, size_t rows, size_t columns) {
  constexpr size_t kVectors = 17;
  ThreadPool one(1);
  ThreadPool two(2);
  const StoredMatrix matrix = Make(rows, columns, storage, type, 3);
  const std::vector<float> x = MakeVectors(kVectors, columns, 99);
  std::vector<float> alone;
  for (size_t m = 0; m < kVectors; ++m) {
    const std::vector<float> y = Multiply(one, matrix.view, x.data() + m * columns, 1);
    alone.insert(alone.end(), y.begin(), y.end());
  }
  bool right = WorstError(matrix, x, kVectors, alone) <= 1.0;
  for (const size_t count : {2, 5, 17}) {
    const std::vector<float> y = Multiply(two, matrix.view, x.data(), count);
    right = right && std::memcmp(y.data(), alone.data(), y.size() * sizeof(float)) == 0;
  }
  if (!right) {
    std::printf("wrong: %d bits, groups of %d, packing %d, type %d, %zu x %zu\n", storage.bits,
                storage.group_size, static_cast<int>(storage.packing), static_cast<int>(type), rows,
                columns);
  }
  return right;
}

// Whether attention is right, and the same bits in chunks and by several threads.
bool CheckAttention(KvType type, size_t group, size_t head_dim) {
  constexpr size_t kLength = 300;
  World world({2, head_dim, type}, 2 * group, {kLength}, /*sinks=*/group == 7);
  const std::vector<float> whole = world.Attend(1, 0, {{0, 0, kLength}});
  const size_t width = 2 * group * head_dim;
  bool right = true;
  for (const size_t p : {size_t{0}, size_t{31}, size_t{130}, kLength - 1}) {
    const std::vector<double> exact = world.Exact(0, p, 0);
    for (size_t i = 0; i < width; ++i) {
      right = right && std::fabs(whole[p * width + i] - exact[i]) <= 2e-6;
    }
    const std::vector<float> alone = world.Attend(2, 0, {{0, p, p + 1}});
    right = right && std::memcmp(whole.data() + p * width, alone.data(), width * 4) == 0;
  }
  if (!right) {
    std::printf("wrong: attention, type %d, %zu queries a key, %zu wide\n", static_cast<int>(type),
                group, head_dim);
  }
  return right;
}

bool CheckAll() {
  bool right = true;
  for (const KvType type : {KvType::kFloat32, KvType::kFloat16, KvType::kBfloat16, KvType::kInt8}) {
    for (const size_t group : {1, 4, 7, 20}) {
      for (const size_t head_dim : {18, 64, 80, 128}) {
        right = CheckAttention(type, group, head_dim) && right;
      }
    }
  }
  for (const Storage storage : {Storage{0, 0}, Storage{4, 32}, Storage{4, 64}, Storage{4, 128},
                                Storage{6, 32}, Storage{6, 64}, Storage{6, 128}, Storage{8, 32},
                                Storage{8, 64}, Storage{8, 128}, kMxfp4, kMxfp8, kNvfp4}) {
    const size_t unit = storage.bits == 0 ? 1 : static_cast<size_t>(storage.group_size);
    for (const Scalar type : {Scalar::kFloat32, Scalar::kBfloat16, Scalar::kFloat16}) {
      for (const size_t rows : {1, 9, 35}) {
        for (const size_t columns : {unit, 3 * unit, (1024 / unit + 3) * unit}) {
          right = Check(storage, type, rows, columns) && right;
        }
      }
    }
  }
  return right;
}

}  // namespace
}  // namespace macrame::runtime::kernels

int main() {
  std::printf("%s\n", macrame::runtime::kernels::InstructionSet());
  return macrame::runtime::kernels::CheckAll() ? 0 : 1;
}
