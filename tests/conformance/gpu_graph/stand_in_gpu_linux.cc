#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "mlx/fast.h"
#include "mlx/fast_primitives.h"
#include "mlx/memory.h"
#include "mlx/primitives.h"
#include "tests/conformance/gpu_graph/library_code.h"
#include "tests/conformance/gpu_graph/stand_in_gpu.h"

namespace macrame::gpu_graph {

namespace mx = mlx::core;

namespace {

using PrepareReshape = std::pair<bool, mx::Strides> (*)(const mx::array&, const mx::array&);
using ShareReshaped = void (*)(const mx::array&, const mx::Strides&, mx::array&);

// Larger results are fresh pages of the system's, which are zeros: nothing freed is kept for them.
constexpr size_t kZeroedBytesMax = size_t{1} << 16;

// Operations that a GPU has no kernel for, or only to make room.
const std::set<std::string>& Views() {
  static const std::set<std::string> names = {
      "Broadcast", "Transpose",  "Slice",         "Squeeze",     "ExpandDims", "Unflatten",
      "Copy",      "Depends",    "AsStrided",     "Split",       "Reshape",    "Flatten",
      "Full",      "Contiguous", "BroadcastAxes", "StopGradient"};
  return names;
}

bool IsAnyOf(const std::string& name, const std::set<std::string>& names) {
  return names.count(name) > 0;
}

class Recorder {
 public:
  static Recorder& Get() {
    static Recorder recorder;
    return recorder;
  }

  DeviceWork work{};
  PrepareReshape prepare_reshape = nullptr;
  ShareReshaped share_reshaped = nullptr;

  void Run(mx::array& array) {
    const std::string name = array.primitive().name();
    if (name == "Synchronize") return;  // the end of an evaluation, by which the host waits
    ++work.operations[name];
    NoteProducts(name, array.primitive());
    for (const mx::array& in : array.inputs()) NoteHostArray(in);
    std::vector<mx::array> outputs = array.outputs();
    Give(name, array, outputs);
    for (mx::array& out : outputs) NoteResult(out);
    Hold(array, outputs);
  }

  void Finish() {
    ++work.evaluations;
    results_.clear();
    held_.clear();
    const auto is_gone = [](const auto& entry) { return entry.second.expired(); };
    std::erase_if(made_here_, is_gone);
    std::erase_if(known_, is_gone);
  }

  void Watch(const std::vector<mx::array>& state) {
    watched_.clear();
    watched_buffers_.clear();
    for (const mx::array& array : state) {
      watched_.insert(array.id());
      if (array.data_shared_ptr() != nullptr) watched_buffers_.insert(array.buffer().ptr());
    }
  }

 private:
  void NoteProducts(const std::string& name, const mx::Primitive& primitive) {
    if (name == "GatherQMM") {
      ++work.expert_products;
      const auto state = static_cast<const mx::GatherQMM&>(primitive).state();
      work.sorted_expert_products += std::get<5>(state) ? 1 : 0;
    } else if (name == "GatherMM") {
      ++work.expert_products;
      const auto state = static_cast<const mx::GatherMM&>(primitive).state();
      work.sorted_expert_products += state.second ? 1 : 0;
    }
  }

  bool IsMadeHere(const mx::array& array) const {
    const auto found = made_here_.find(array.data_shared_ptr().get());
    return found != made_here_.end() && !found->second.expired();
  }

  void NoteHostArray(const mx::array& in) {
    if (in.has_primitive() || results_.count(in.id()) > 0 || IsMadeHere(in)) return;
    if (IsStateTakenOver(in)) return;
    std::weak_ptr<mx::array::Data>& known = known_[in.data_shared_ptr().get()];
    if (known.lock() == in.data_shared_ptr()) return;
    known = in.data_shared_ptr();
    ++work.host_arrays;
    work.host_bytes += in.nbytes();
  }

  void NoteResult(mx::array& out) {
    results_.insert(out.id());
    if (out.data_shared_ptr() == nullptr) return;
    if (fresh_.count(out.data_shared_ptr().get()) > 0) {
      made_here_[out.data_shared_ptr().get()] = out.data_shared_ptr();
    }
  }

  // As Metal's command buffers do: what was read, but for what became the result.
  void Hold(const mx::array& array, const std::vector<mx::array>& outputs) {
    fresh_.clear();
    for (const mx::array& in : array.inputs()) {
      if (in.data_shared_ptr() != outputs[0].data_shared_ptr()) held_.insert(in.data_shared_ptr());
    }
  }

  void Allocate(mx::array& out) {
    const size_t bytes = out.nbytes();
    out.set_data(mx::allocator::malloc(bytes));
    if (bytes > 0 && bytes <= kZeroedBytesMax) std::memset(out.data<char>(), 0, bytes);
    fresh_.insert(out.data_shared_ptr().get());
  }

  // A new array over the memory of one that is watched (KvPools): the host made it, and filled
  // nothing.
  bool IsStateTakenOver(const mx::array& array) const {
    return !array.has_primitive() && array.data_shared_ptr() != nullptr &&
           watched_buffers_.count(array.buffer().ptr()) > 0;
  }

  // An array that the host made may have the id of a watched one that is gone.
  bool IsWatched(const mx::array& array) const {
    if (IsStateTakenOver(array)) return true;
    return watched_.count(array.id()) > 0 && (results_.count(array.id()) > 0 || IsMadeHere(array));
  }

  // A result that is part of the state, or is a copy of some of it, is watched like it.
  void Follow(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
    const bool is_watched =
        std::any_of(inputs.begin(), inputs.end(), [&](const auto& in) { return IsWatched(in); });
    for (const mx::array& out : outputs) {
      if (is_watched) {
        watched_.insert(out.id());
      } else {
        watched_.erase(out.id());
      }
    }
  }

  void Copied(const std::vector<mx::array>& inputs, const mx::array& out) {
    if (inputs.size() == 1 || !IsWatched(inputs[0])) {
      for (const mx::array& in : inputs) work.copied_bytes += IsWatched(in) ? in.nbytes() : 0;
      return;
    }
    work.copied_bytes += out.nbytes();
  }

  void Give(const std::string& name, mx::array& array, std::vector<mx::array>& outputs) {
    static const std::set<std::string> shared = {
        "Broadcast", "BroadcastAxes", "Transpose", "Slice", "Squeeze",          "ExpandDims",
        "Copy",      "Depends",       "AsStrided", "Split", "CustomTransforms", "StopGradient"};
    static const std::set<std::string> reshaped = {"Reshape", "Flatten", "Unflatten"};
    static const std::set<std::string> updates = {"SliceUpdate", "DynamicSliceUpdate",
                                                  "MaskedScatter"};
    static const std::set<std::string> copies = {"Gather", "GatherAxis",   "Concatenate", "AsType",
                                                 "Pad",    "DynamicSlice", "Select"};
    const std::vector<mx::array>& inputs = array.inputs();
    if (IsAnyOf(name, shared)) {
      // MLX's own code for these is the same on all devices, and touches no number.
      array.primitive().eval_cpu(inputs, outputs);
      Follow(inputs, outputs);
    } else if (IsAnyOf(name, reshaped)) {
      Reshape(inputs, outputs);
    } else if (name == "Contiguous") {
      MakeContiguous(inputs, outputs);
    } else if (IsAnyOf(name, updates) || name.starts_with("Scatter")) {
      Update(inputs, outputs);
    } else {
      for (mx::array& out : outputs) Allocate(out);
      const bool is_copy = IsAnyOf(name, copies);
      if (is_copy) Copied(inputs, outputs[0]);
      Follow(is_copy ? inputs : std::vector<mx::array>(), outputs);
    }
  }

  void Reshape(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
    const auto [copies, strides] = prepare_reshape(inputs[0], outputs[0]);
    if (copies) {
      Allocate(outputs[0]);
      Copied(inputs, outputs[0]);
    } else {
      share_reshaped(inputs[0], strides, outputs[0]);
    }
    Follow(inputs, outputs);
  }

  void MakeContiguous(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
    if (inputs[0].flags().row_contiguous) {
      outputs[0].copy_shared_buffer(inputs[0]);
    } else {
      Allocate(outputs[0]);
      Copied(inputs, outputs[0]);
    }
    Follow(inputs, outputs);
  }

  void Update(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
    const mx::array& before = inputs[0];
    mx::array& out = outputs[0];
    const bool is_whole = before.flags().row_contiguous && before.size() == before.data_size();
    if (is_whole && before.is_donatable()) {
      out.copy_shared_buffer(before);
    } else {
      Allocate(out);
      if (IsWatched(before)) work.copied_bytes += before.nbytes();
    }
    const std::vector<mx::array> first = {before};
    Follow(first, outputs);
  }

  // Of the evaluation that goes on.
  std::unordered_set<uintptr_t> results_;
  std::set<std::shared_ptr<mx::array::Data>> held_;
  std::unordered_set<const void*> fresh_;
  // Of all.
  std::unordered_map<const void*, std::weak_ptr<mx::array::Data>> made_here_;
  std::unordered_map<const void*, std::weak_ptr<mx::array::Data>> known_;  // the host's
  std::unordered_set<uintptr_t> watched_;
  std::unordered_set<const void*> watched_buffers_;
};

void RunOnStandIn(mx::array& array) { Recorder::Get().Run(array); }
void FinishOnStandIn(mx::Stream) { Recorder::Get().Finish(); }
void Nothing(mx::Stream) {}

// Attention is one operation, as on Metal but for training; Metal's own rule depends on its release
// and on sizes of heads (README.md).
bool AttentionIsInParts(const mx::array&, const mx::array&, const mx::array&, bool, bool, bool,
                        bool, bool is_training, bool gives_sums, bool, mx::Stream) {
  return is_training || gives_sums;
}

void Expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("MLX does not take the stand-in GPU: " + what);
}

// Norms, RoPE, attention and delta-net have to be single operations, else counts mean nothing.
void ExpectWholeOperations() {
  const mx::array rows = mx::zeros({1, 2, 4, 64}, mx::bfloat16);
  const mx::array weight = mx::zeros({64}, mx::bfloat16), gate = mx::zeros({1, 4, 2}, mx::float32);
  const mx::array heads = mx::zeros({1, 4, 2, 64}, mx::bfloat16);
  const std::pair<std::string, mx::array> made[] = {
      {"RMSNorm", mx::fast::rms_norm(rows, weight, 1e-5F)},
      {"LayerNorm", mx::fast::layer_norm(rows, weight, weight, 1e-5F)},
      {"RoPE", mx::fast::rope(rows, 64, false, 1e4F, 1.0F, 3)},
      {"ScaledDotProductAttention",
       mx::fast::scaled_dot_product_attention(rows, rows, rows, 1.0F, "causal")},
      {"GatedDeltaUpdate", mx::fast::gated_delta_update(heads, heads, heads, gate, gate)[0]}};
  for (const auto& [name, array] : made) {
    Expect(array.has_primitive() && array.primitive().device() == mx::Device::gpu,
           name + " is not built for a GPU");
    Expect(array.primitive().name() == name,
           name + " is built as " + std::string(array.primitive().name()));
  }
}

}  // namespace

int DeviceWork::all() const {
  int count = 0;
  for (const auto& [name, times] : operations) count += times;
  return count;
}

int DeviceWork::work() const {
  int count = 0;
  for (const auto& [name, times] : operations) count += IsAnyOf(name, Views()) ? 0 : times;
  return count;
}

int DeviceWork::scatters() const {
  int count = 0;
  for (const auto& [name, times] : operations) {
    count += name.find("Scatter") != std::string::npos ? times : 0;
  }
  return count;
}

void BeginStandInGpu() {
  mallopt(M_MMAP_THRESHOLD, static_cast<int>(kZeroedBytesMax));
  mx::set_cache_limit(0);
  bool (*const exported)(const mx::Device&) = &mx::is_available;
  LibraryCode mlx(reinterpret_cast<const void*>(exported));
  Recorder& recorder = Recorder::Get();
  recorder.prepare_reshape =
      reinterpret_cast<PrepareReshape>(mlx.Find("_ZN3mlx4core15prepare_reshapeERKNS0_5arrayES3_"));
  recorder.share_reshaped = reinterpret_cast<ShareReshaped>(mlx.Find(
      "_ZN3mlx4core21shared_buffer_reshapeERKNS0_5arrayERKNS0_11SmallVectorIlLm10ESaIlEEERS1_"));
  mlx.ReturnAlways("_ZN3mlx4core3gpu12is_availableEv", 1);
  mlx.ReturnAlways("_ZN3mlx4core3gpu12device_countEv", 1);
  const auto code_of = [](auto* function) { return reinterpret_cast<const void*>(function); };
  mlx.Replace("_ZN3mlx4core3gpu4evalERNS0_5arrayE", code_of(&RunOnStandIn));
  mlx.Replace("_ZN3mlx4core3gpu8finalizeENS0_6StreamE", code_of(&FinishOnStandIn));
  for (const char* name : {"10new_stream", "24new_thread_unsafe_stream", "11synchronize"}) {
    mlx.Replace("_ZN3mlx4core3gpu" + std::string(name) + "ENS0_6StreamE", code_of(&Nothing));
  }
  const std::string fast = "_ZN3mlx4core4fast";
  mlx.ReturnAlways(fast + "7RMSNorm12use_fallbackENS0_6StreamE", 0);
  mlx.ReturnAlways(fast + "9LayerNorm12use_fallbackENS0_6StreamE", 0);
  mlx.ReturnAlways(fast + "4RoPE12use_fallbackENS0_6StreamE", 0);
  mlx.ReturnAlways(fast + "16GatedDeltaUpdate12use_fallbackEiiiibNS0_6StreamE", 0);
  mlx.ReturnAlways(fast + "25ScaledDotProductAttention18supports_bool_maskEv", 1);
  mlx.Replace(
      fast + "25ScaledDotProductAttention12use_fallbackERKNS0_5arrayES5_S5_bbbbbbbNS0_6StreamE",
      code_of(&AttentionIsInParts));
  Expect(mx::is_available(mx::Device::gpu), "it is not available");
  mx::set_default_device(mx::Device::gpu);
  ExpectWholeOperations();
}

void ResetWork() { Recorder::Get().work = {}; }

const DeviceWork& WorkSoFar() { return Recorder::Get().work; }

void WatchState(const std::vector<mx::array>& state) { Recorder::Get().Watch(state); }

}  // namespace macrame::gpu_graph
