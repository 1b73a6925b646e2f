#include "transport/mlx_group/mlx_group.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <stdexcept>
#include <vector>

#include "absl/strings/str_cat.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/distributed/distributed_impl.h"
#include "proto/reasons.h"
#include "transport/collectives/reduce.h"

namespace macrame::transport {
namespace {

namespace mx = mlx::core;
using std::chrono::steady_clock;

constexpr size_t kTimesKept = 512;

Element ElementOf(mx::Dtype type) {
  switch (type.val()) {
    case mx::Dtype::Val::bool_:
      return Element::kBool;
    case mx::Dtype::Val::uint8:
      return Element::kUint8;
    case mx::Dtype::Val::uint16:
      return Element::kUint16;
    case mx::Dtype::Val::uint32:
      return Element::kUint32;
    case mx::Dtype::Val::uint64:
      return Element::kUint64;
    case mx::Dtype::Val::int8:
      return Element::kInt8;
    case mx::Dtype::Val::int16:
      return Element::kInt16;
    case mx::Dtype::Val::int32:
      return Element::kInt32;
    case mx::Dtype::Val::int64:
      return Element::kInt64;
    case mx::Dtype::Val::float16:
      return Element::kFloat16;
    case mx::Dtype::Val::bfloat16:
      return Element::kBfloat16;
    case mx::Dtype::Val::float32:
      return Element::kFloat32;
    case mx::Dtype::Val::float64:
      return Element::kFloat64;
    case mx::Dtype::Val::complex64:
      return Element::kComplex64;
  }
  throw std::invalid_argument("a type that collectives do not know");
}

}  // namespace

class MlxGroup::Impl : public mx::distributed::detail::GroupImpl {
 public:
  explicit Impl(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  mx::Stream communication_stream(mx::StreamOrDevice s) override {
    return mx::to_stream(s, mx::Device::cpu);
  }
  int rank() override { return group_->rank(); }
  int size() override { return group_->size(); }
  std::shared_ptr<GroupImpl> split(int color, int key) override {
    throw std::runtime_error(
        absl::StrCat("the group can't be split (color ", color, ", key ", key, ")"));
  }

  void all_sum(const mx::array& in, mx::array& out, mx::Stream stream) override {
    Reduce(in, out, stream, Reduction::kSum);
  }
  void all_max(const mx::array& in, mx::array& out, mx::Stream stream) override {
    Reduce(in, out, stream, Reduction::kMax);
  }
  void all_min(const mx::array& in, mx::array& out, mx::Stream stream) override {
    Reduce(in, out, stream, Reduction::kMin);
  }

  void all_gather(const mx::array& in, mx::array& out, mx::Stream stream) override {
    Dispatch(in, out, stream,
             [this, from = Bytes(in), to = Bytes(out)] { Hold(group_->AllGather(from, to)); });
  }

  void sum_scatter(const mx::array& in, mx::array& out, mx::Stream stream) override {
    const Element element = ElementOf(in.dtype());
    Dispatch(in, out, stream,
             [this, from = Bytes(in), to = Bytes(out), element, count = out.size()] {
               Hold(group_->ReduceScatter(from.data(), to.data(), count, element, Reduction::kSum));
             });
  }

  void send(const mx::array& in, int dst, mx::Stream stream) override {
    auto& encoder = mx::cpu::get_command_encoder(stream);
    encoder.set_input_array(in);
    encoder.dispatch([this, from = Bytes(in), dst] { Hold(group_->SendTo(from, dst)); });
  }

  void recv(mx::array& out, int src, mx::Stream stream) override {
    auto& encoder = mx::cpu::get_command_encoder(stream);
    encoder.set_output_array(out);
    encoder.dispatch([this, to = Bytes(out), src] { Hold(group_->ReceiveFrom(to, src)); });
  }

  absl::Status status() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  CollectiveTimes times() const {
    std::vector<float> kept;
    CollectiveTimes times;
    {
      const std::lock_guard lock(mutex_);
      times.count = count_;
      kept.assign(times_.begin(), times_.begin() + std::min<uint64_t>(count_, kTimesKept));
    }
    if (kept.empty()) return times;
    std::sort(kept.begin(), kept.end());
    times.us_p50 = static_cast<double>(kept[kept.size() / 2]);
    times.us_p99 = static_cast<double>(kept[kept.size() * 99 / 100]);
    return times;
  }

  absl::Status SumInRankOrder(void* values, size_t count, Element element) {
    const auto begun = steady_clock::now();
    const size_t bytes = count * SizeOf(element);
    const absl::Status status =
        group_->sums_in_rank_order()
            ? group_->AllReduce(values, values, count, element, Reduction::kSum)
            : GatherAndSum(values, count, element);
    if (status.ok() && bytes <= kSmallCollectiveBytes) Note(steady_clock::now() - begun);
    return status;
  }

 private:
  void Hold(const absl::Status& status) {
    if (status.ok()) return;
    {
      const std::lock_guard lock(mutex_);
      failure_.Update(status);
    }
    // The remedy is for who reads the whole error, whose cause this is.
    throw std::runtime_error(ReasonOf(status).message());
  }

  absl::Status GatherAndSum(void* values, size_t count, Element element) {
    const size_t bytes = count * SizeOf(element);
    const auto size = static_cast<size_t>(group_->size());
    gathered_.resize(bytes * size);
    const absl::Status status =
        group_->AllGather({static_cast<const std::byte*>(values), bytes}, gathered_);
    if (!status.ok()) return status;
    std::vector<const void*> parts;
    for (size_t peer = 0; peer < size; ++peer) parts.push_back(gathered_.data() + peer * bytes);
    transport::Reduce(parts, values, count, element, Reduction::kSum);
    return absl::OkStatus();
  }

  static std::span<std::byte> Bytes(const mx::array& array) {
    // MLX hands out the memory of inputs as const; the collectives only read it.
    return {const_cast<std::byte*>(reinterpret_cast<const std::byte*>(array.data<char>())),
            array.nbytes()};
  }

  template <typename Task>
  void Dispatch(const mx::array& in, mx::array& out, mx::Stream stream, Task task) {
    auto& encoder = mx::cpu::get_command_encoder(stream);
    encoder.set_input_array(in);
    encoder.set_output_array(out);
    encoder.dispatch(std::move(task));
  }

  void Reduce(const mx::array& in, mx::array& out, mx::Stream stream, Reduction reduction) {
    const Element element = ElementOf(in.dtype());
    Dispatch(in, out, stream,
             [this, from = Bytes(in), to = Bytes(out), element, count = in.size(), reduction] {
               const auto begun = steady_clock::now();
               Hold(group_->AllReduce(from.data(), to.data(), count, element, reduction));
               if (from.size() <= kSmallCollectiveBytes) Note(steady_clock::now() - begun);
             });
  }

  void Note(steady_clock::duration took) {
    const std::lock_guard lock(mutex_);
    times_[count_++ % kTimesKept] = std::chrono::duration<float, std::micro>(took).count();
  }

  const std::shared_ptr<Group> group_;
  std::vector<std::byte> gathered_;
  mutable std::mutex mutex_;
  absl::Status failure_;
  std::array<float, kTimesKept> times_{};
  uint64_t count_ = 0;
};

MlxGroup::MlxGroup(std::shared_ptr<Group> group)
    : group_(std::move(group)), impl_(std::make_shared<Impl>(group_)), handle_(impl_) {}

absl::Status MlxGroup::SumInRankOrder(void* values, size_t count, Element element) {
  return impl_->SumInRankOrder(values, count, element);
}

CollectiveTimes MlxGroup::times() const { return impl_->times(); }

absl::Status MlxGroup::status() const { return impl_->status(); }

}  // namespace macrame::transport
