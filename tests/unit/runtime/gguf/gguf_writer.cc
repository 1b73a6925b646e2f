#include "tests/unit/runtime/gguf/gguf_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "tests/unit/fresh_folder.h"

namespace macrame::runtime::gguf {
namespace {

constexpr uint32_t kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9;
constexpr uint32_t kQ4_0 = 2, kQ8_0 = 8, kF32 = 0;
constexpr size_t kAlignment = 32;

template <typename T>
std::string Raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string Sized(const std::string& text) { return Raw<uint64_t>(text.size()) + text; }

template <typename T>
std::string Array(uint32_t kind, const std::vector<T>& values) {
  std::string out = Raw(kind) + Raw<uint64_t>(values.size());
  for (const T& value : values) out += Raw(value);
  return out;
}

std::string Padded(std::string bytes) {
  bytes.resize((bytes.size() + kAlignment - 1) / kAlignment * kAlignment);
  return bytes;
}

// Random blocks with a scale of 2^-6 in float16 (0x2400).
std::string RandomBlocks(uint64_t numbers, size_t bytes_in_block, std::mt19937& random) {
  std::string out;
  for (uint64_t block = 0; block < numbers / 32; ++block) {
    out += Raw<uint16_t>(0x2400);
    for (size_t i = 2; i < bytes_in_block; ++i) out += static_cast<char>(random() & 0xFFU);
  }
  return out;
}

// GPT-2's letters for bytes: printable ones stand for themselves, the others for U+0100 on.
std::vector<std::string> ByteWords() {
  std::vector<std::string> words;
  int next = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int letter = plain ? byte : 256 + next++;
    words.push_back(letter < 128 ? std::string(1, static_cast<char>(letter))
                                 : std::string{static_cast<char>(0xC0 | (letter >> 6)),
                                               static_cast<char>(0x80 | (letter & 63))});
  }
  return words;
}

}  // namespace

std::string& GgufWriter::Entry(const std::string& key, uint32_t kind) {
  const auto found = std::find_if(metadata_.begin(), metadata_.end(),
                                  [&](const auto& entry) { return entry.first == key; });
  if (found == metadata_.end()) {
    metadata_.emplace_back(key, Raw(kind));
    return metadata_.back().second;
  }
  return found->second = Raw(kind);
}

GgufWriter& GgufWriter::Text(const std::string& key, const std::string& value) {
  Entry(key, kString) += Sized(value);
  return *this;
}
GgufWriter& GgufWriter::Integer(const std::string& key, uint32_t value) {
  Entry(key, kUint32) += Raw(value);
  return *this;
}
GgufWriter& GgufWriter::Number(const std::string& key, float value) {
  Entry(key, kFloat32) += Raw(value);
  return *this;
}
GgufWriter& GgufWriter::Flag(const std::string& key, bool value) {
  Entry(key, kBool) += static_cast<char>(value);
  return *this;
}
GgufWriter& GgufWriter::Texts(const std::string& key, const std::vector<std::string>& values) {
  std::string& entry = Entry(key, kArray);
  entry += Raw(kString) + Raw<uint64_t>(values.size());
  for (const std::string& value : values) entry += Sized(value);
  return *this;
}
GgufWriter& GgufWriter::Integers(const std::string& key, const std::vector<int32_t>& values) {
  Entry(key, kArray) += Array(kInt32, values);
  return *this;
}
GgufWriter& GgufWriter::Numbers(const std::string& key, const std::vector<float>& values) {
  Entry(key, kArray) += Array(kFloat32, values);
  return *this;
}

GgufWriter& GgufWriter::Tensor(const std::string& name, uint32_t type,
                               const std::vector<uint64_t>& sides, const std::string& data) {
  Remove(name);
  tensors_.push_back({name, type, sides, data});
  return *this;
}

GgufWriter& GgufWriter::Remove(const std::string& tensor) {
  std::erase_if(tensors_, [&](const Placed& placed) { return placed.name == tensor; });
  return *this;
}

std::string GgufWriter::Bytes() const {
  std::string out =
      "GGUF" + Raw(version) + Raw<uint64_t>(tensors_.size()) + Raw<uint64_t>(metadata_.size());
  for (const auto& [key, value] : metadata_) out += Sized(key) + value;
  std::string data;
  for (const Placed& tensor : tensors_) {
    out += Sized(tensor.name) + Raw(static_cast<uint32_t>(tensor.sides.size()));
    for (const uint64_t side : tensor.sides) out += Raw(side);
    out += Raw(tensor.type) + Raw<uint64_t>(data.size());
    data = Padded(data + tensor.data);
  }
  return Padded(out) + data;
}

std::string FloatBytesOf(const std::vector<float>& values) {
  std::string out;
  for (const float value : values) out += Raw(value);
  return out;
}

GgufWriter SmallModel(const std::string& architecture) {
  constexpr uint64_t kHidden = 64, kInner = 96, kKv = 32, kWords = 300, kExperts = 3;
  std::mt19937 random(7);
  GgufWriter out;
  out.Text("general.architecture", architecture)
      .Integer(architecture + ".block_count", 2)
      .Integer(architecture + ".context_length", 512)
      .Integer(architecture + ".embedding_length", kHidden)
      .Integer(architecture + ".feed_forward_length", kInner)
      .Integer(architecture + ".attention.head_count", 4)
      .Integer(architecture + ".attention.head_count_kv", 2)
      .Number(architecture + ".attention.layer_norm_rms_epsilon", 1e-5F)
      .Number(architecture + ".rope.freq_base", 10000.0F);
  const auto matrix = [&](const std::string& name, uint64_t rows, uint64_t columns) {
    out.Tensor(name, kQ4_0, {columns, rows}, RandomBlocks(rows * columns, 18, random));
  };
  const auto vector = [&](const std::string& name, uint64_t size) {
    std::vector<float> values(size);
    for (float& value : values) value = 1.0F + static_cast<float>(random() % 128) / 128.0F;
    out.Tensor(name, kF32, {size}, FloatBytesOf(values));
  };
  const bool has_experts = architecture == "qwen3moe";
  const auto experts = [&](const std::string& name, uint64_t rows, uint64_t columns) {
    out.Tensor(name, kQ4_0, {columns, rows, kExperts},
               RandomBlocks(kExperts * rows * columns, 18, random));
  };
  if (has_experts) {
    out.Integer(architecture + ".expert_count", kExperts)
        .Integer(architecture + ".expert_used_count", 2)
        .Integer(architecture + ".expert_feed_forward_length", kInner);
  }
  out.Tensor("token_embd.weight", kQ8_0, {kHidden, kWords},
             RandomBlocks(kWords * kHidden, 34, random));
  vector("output_norm.weight", kHidden);
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    matrix(layer + "attn_q.weight", kHidden, kHidden);
    matrix(layer + "attn_k.weight", kKv, kHidden);
    matrix(layer + "attn_v.weight", kKv, kHidden);
    matrix(layer + "attn_output.weight", kHidden, kHidden);
    if (has_experts) {
      std::vector<float> router(kExperts * kHidden);
      for (float& value : router) value = static_cast<float>(random() % 256) / 256.0F - 0.5F;
      out.Tensor(layer + "ffn_gate_inp.weight", kF32, {kHidden, kExperts}, FloatBytesOf(router));
      experts(layer + "ffn_gate_exps.weight", kInner, kHidden);
      experts(layer + "ffn_up_exps.weight", kInner, kHidden);
      experts(layer + "ffn_down_exps.weight", kHidden, kInner);
    } else {
      matrix(layer + "ffn_gate.weight", kInner, kHidden);
      matrix(layer + "ffn_up.weight", kInner, kHidden);
      matrix(layer + "ffn_down.weight", kHidden, kInner);
    }
    vector(layer + "attn_norm.weight", kHidden);
    vector(layer + "ffn_norm.weight", kHidden);
    if (architecture == "qwen2") {
      vector(layer + "attn_q.bias", kHidden);
      vector(layer + "attn_k.bias", kKv);
      vector(layer + "attn_v.bias", kKv);
    }
    if (architecture == "qwen3" || has_experts) {
      vector(layer + "attn_q_norm.weight", kHidden / 4);
      vector(layer + "attn_k_norm.weight", kHidden / 4);
    }
  }
  std::vector<std::string> words = ByteWords();
  std::vector<std::string> merges;
  const std::string letters = "etaoinshrdlucmfwygpbvk";
  for (size_t i = 0; words.size() < kWords - 2; ++i) {
    const std::string left(1, letters[i % 8]), right(1, letters[i / 8]);
    if (std::find(words.begin(), words.end(), left + right) != words.end()) continue;
    words.push_back(left + right);
    merges.push_back(left + " " + right);
  }
  words.insert(words.end(), {"<|im_start|>", "<|im_end|>"});
  std::vector<int32_t> kinds(kWords, 1);
  kinds[kWords - 2] = kinds[kWords - 1] = 3;
  return out.Text("tokenizer.ggml.model", "gpt2")
      .Text("tokenizer.ggml.pre", "qwen2")
      .Texts("tokenizer.ggml.tokens", words)
      .Texts("tokenizer.ggml.merges", merges)
      .Integers("tokenizer.ggml.token_type", kinds)
      .Integer("tokenizer.ggml.eos_token_id", kWords - 1)
      .Text("tokenizer.chat_template",
            "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
}

GgufWriter SmallMixtral() {
  constexpr uint64_t kHidden = 64, kInner = 96, kExperts = 3;
  std::mt19937 random(9);
  GgufWriter out = SmallModel("llama");
  out.Integer("llama.expert_count", kExperts).Integer("llama.expert_used_count", 2);
  const std::string blocks = RandomBlocks(kExperts * kInner * kHidden, 18, random);
  for (const std::string layer : {"blk.0.ffn_", "blk.1.ffn_"}) {
    for (const char* name : {"gate", "up", "down"}) out.Remove(layer + name + ".weight");
    out.Tensor(layer + "gate_inp.weight", kF32, {kHidden, kExperts},
               FloatBytesOf(std::vector<float>(kExperts * kHidden, 0.25F)));
    out.Tensor(layer + "gate_exps.weight", kQ4_0, {kHidden, kInner, kExperts}, blocks);
    out.Tensor(layer + "up_exps.weight", kQ4_0, {kHidden, kInner, kExperts}, blocks);
    out.Tensor(layer + "down_exps.weight", kQ4_0, {kInner, kHidden, kExperts}, blocks);
  }
  return out;
}

std::string WriteGguf(const std::string& name, const std::string& bytes) {
  const std::string path = FreshFolder() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

}  // namespace macrame::runtime::gguf
