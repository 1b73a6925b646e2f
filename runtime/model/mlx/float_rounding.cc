#include "runtime/model/mlx/float_rounding.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

using Arrays = Fused::Arrays;

constexpr float kE4m3Max = 448.0F, kE2m1Max = 6.0F;

// Of the largest number of each block, what it is by the largest that is held.
mx::array Share(const mx::array& largest, float least, float most) {
  const mx::array plain = mx::maximum(mx::astype(largest, mx::float32), mx::array(least));
  return mx::divide(plain, mx::array(most));
}
Arrays ShareOfE4m3(const Arrays& in) { return {Share(in[0], 1e-4F, kE4m3Max)}; }
Arrays ShareByPower(const Arrays& in) { return {Share(in[0], kE2m1Max * 0x1p-126F, kE2m1Max)}; }
Arrays ShareByE4m3(const Arrays& in) { return {Share(in[0], kE2m1Max * 0x1p-9F, kE2m1Max)}; }

// The bits of a float above zero -> those of the least power of two that is not below it. From the
// bits, since powers and logarithms of a GPU need not be exact.
Arrays UpToPower(const Arrays& in) {
  const mx::array up = mx::add(in[0], mx::array(0x007FFFFFU, mx::uint32));
  return {mx::bitwise_and(up, mx::array(0xFF800000U, mx::uint32))};
}

mx::array ToE4m3(const mx::array& x) { return mx::from_fp8(mx::to_fp8(x), mx::float32); }

// x, scale.
Arrays Limit(const Arrays& in) {
  const mx::array scaled = mx::divide(mx::astype(in[0], mx::float32), in[1]);
  return {mx::maximum(mx::minimum(scaled, mx::array(kE4m3Max)), mx::array(-kE4m3Max))};
}

// Numbers, scale, what has the type that is wanted.
Arrays Scale(const Arrays& in) { return {mx::astype(mx::multiply(in[0], in[1]), in[2].dtype())}; }

// x and scale -> of x's type; ties go to the even number.
Arrays ToE2m1(const Arrays& in) {
  const mx::array scaled = mx::divide(mx::astype(in[0], mx::float32), in[1]);
  const mx::array size = mx::abs(scaled);
  const auto above = [&](float least) {
    return mx::astype(mx::greater(size, mx::array(least)), mx::float32);
  };
  const auto from = [&](float least) {
    return mx::astype(mx::greater_equal(size, mx::array(least)), mx::float32);
  };
  const mx::array halves =
      mx::add(mx::add(above(0.25F), from(0.75F)), mx::add(above(1.25F), from(1.75F)));
  const mx::array wholes = mx::add(above(2.5F), from(3.5F));
  const mx::array rounded = mx::add(mx::add(mx::multiply(halves, mx::array(0.5F)), wholes),
                                    mx::multiply(above(5.0F), mx::array(2.0F)));
  return {mx::astype(mx::multiply(mx::multiply(mx::sign(scaled), rounded), in[1]), in[0].dtype())};
}

mx::array BlocksOf(const mx::array& x, int block) {
  return mx::unflatten(x, -1, {x.shape(-1) / block, block});
}

mx::array LargestOf(const mx::array& blocks) {
  return mx::max(mx::abs(blocks), -1, /*keepdims=*/true);
}

}  // namespace

MlxFloatRounding::MlxFloatRounding(EngineDevice device)
    : share_of_e4m3_(ShareOfE4m3, device),
      share_by_power_(ShareByPower, device),
      share_by_e4m3_(ShareByE4m3, device),
      up_to_power_(UpToPower, device),
      limit_(Limit, device),
      scale_(Scale, device),
      to_fp4_(ToE2m1, device) {}

mx::array MlxFloatRounding::PowerFrom(const mx::array& x) const {
  return mx::view(up_to_power_({mx::view(x, mx::uint32)})[0], mx::float32);
}

mx::array MlxFloatRounding::ToFp8(const mx::array& x) const {
  constexpr int kBlock = static_cast<int>(kernels::kFp8Block);
  if (x.shape(-1) % kBlock != 0) return x;
  const mx::array blocks = BlocksOf(x, kBlock);
  const mx::array scale = PowerFrom(share_of_e4m3_({LargestOf(blocks)})[0]);
  const mx::array rounded = ToE4m3(limit_({blocks, scale})[0]);
  return mx::flatten(scale_({rounded, scale, blocks})[0], -2, -1);
}

mx::array MlxFloatRounding::ToFp4(const mx::array& x, int block, kernels::Fp4Scale kind) const {
  if (x.shape(-1) % block != 0) return x;
  const mx::array blocks = BlocksOf(x, block), largest = LargestOf(blocks);
  const mx::array scale = kind == kernels::Fp4Scale::kPowerOfTwo
                              ? PowerFrom(share_by_power_({largest})[0])
                              : ToE4m3(share_by_e4m3_({largest})[0]);
  return mx::flatten(to_fp4_({blocks, scale})[0], -2, -1);
}

}  // namespace macrame::runtime::engine
