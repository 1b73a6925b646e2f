#include "runtime/model/weights/joined_experts.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macrame::runtime::engine {
namespace {

constexpr std::string_view kBlock = ".block_sparse_moe.";

// "PREFIX.block_sparse_moe.OWNER.MAP.PART"; the owner is empty where the map stands by itself.
struct Name {
  std::string layer;  // before kBlock
  std::string owner, map, part;
};

bool Parse(const std::string& name, Name& out) {
  const size_t at = name.find(kBlock);
  if (at == std::string::npos) return false;
  out.layer = name.substr(0, at);
  std::string rest = name.substr(at + kBlock.size());
  const size_t dot = rest.rfind('.');
  if (dot == std::string::npos) return false;
  out.part = rest.substr(dot + 1);
  rest.resize(dot);
  const size_t owner = rest.rfind('.');
  out.owner = owner == std::string::npos ? "" : rest.substr(0, owner);
  out.map = owner == std::string::npos ? rest : rest.substr(owner + 1);
  return out.map.ends_with("_proj");
}

// Entries [begin, end) of the first axis.
StoredTensor Slice(const StoredTensor& whole, int64_t begin, int64_t end) {
  StoredTensor part = whole;
  const size_t each = whole.bytes / static_cast<size_t>(whole.shape[0]);
  part.shape[0] = end - begin;
  part.data += each * static_cast<size_t>(begin);
  part.begin += each * static_cast<size_t>(begin);
  part.bytes = each * static_cast<size_t>(end - begin);
  return part;
}

// One entry of the first axis, without that.
StoredTensor Entry(const StoredTensor& whole, int64_t index) {
  StoredTensor part = Slice(whole, index, index + 1);
  part.shape.erase(part.shape.begin());
  return part;
}

class Splitter {
 public:
  explicit Splitter(const TensorsByName& tensors) : tensors_(tensors) {}

  TensorsByName Run() {
    for (const auto& [name, tensor] : tensors_) {
      Name parsed;
      if (!Parse(name, parsed) || !Split(parsed, tensor)) Put(name, tensor);
    }
    return std::move(out_);
  }

 private:
  void Put(const std::string& name, StoredTensor tensor) {
    tensor.name = name;
    out_.emplace(name, std::move(tensor));
  }

  // A map of one expert, [rows, …]; both maps if they are one tensor.
  void PutMap(const std::string& owner, const Name& name, const StoredTensor& tensor,
              const std::string& gate, const std::string& up, const std::string& other) {
    if (name.map != "gate_up_proj") {
      return Put(absl::StrCat(owner, ".", other, ".", name.part), tensor);
    }
    const int64_t half = tensor.shape[0] / 2;
    Put(absl::StrCat(owner, ".", gate, ".", name.part), Slice(tensor, 0, half));
    Put(absl::StrCat(owner, ".", up, ".", name.part), Slice(tensor, half, 2 * half));
  }

  // False: it stays as it is.
  bool Split(const Name& name, const StoredTensor& tensor) {
    const std::string block = name.layer + std::string(kBlock.substr(0, kBlock.size() - 1));
    const bool joined = name.map == "gate_up_proj";
    const size_t axes = tensor.shape.size();
    for (const int64_t size : tensor.shape) {
      if (size <= 0) return false;
    }
    if (name.owner.empty()) {
      if (joined || axes != 2) return false;
      Put(absl::StrCat(name.layer, ".mlp.", name.map, ".", name.part), tensor);
      return true;
    }
    const std::string shared = absl::StrCat(block, ".shared_experts");
    if (name.owner == "shared_experts" && joined && axes == 2) {
      PutMap(shared, name, tensor, "gate_proj", "up_proj", name.map);
      return true;
    }
    const auto router = tensors_.find(absl::StrCat(block, ".gate.weight"));
    if (name.owner != "switch_mlp" || axes != 3 || router == tensors_.end()) return false;
    const int64_t count = router->second.shape.empty() ? 0 : router->second.shape[0];
    const bool folded = count > 0 && tensor.shape[0] == count + 1;
    if (!folded && !(joined && tensor.shape[0] == count)) return false;
    if (folded) {
      PutMap(shared, name, Entry(tensor, count), "gate_proj", "up_proj", name.map);
    }
    if (!joined) {
      Put(tensor.name, Slice(tensor, 0, count));
      return true;
    }
    for (int64_t expert = 0; expert < count; ++expert) {
      PutMap(absl::StrCat(block, ".experts.", expert), name, Entry(tensor, expert), "w1", "w3", "");
    }
    return true;
  }

  const TensorsByName& tensors_;
  TensorsByName out_;
};

}  // namespace

TensorsByName SplitJoinedExperts(const TensorsByName& tensors) { return Splitter(tensors).Run(); }

}  // namespace macrame::runtime::engine
