#pragma once

// Makes small GGUF files, right ones and wrong ones.

#include <cstdint>
#include <string>
#include <vector>

namespace macrame::runtime::gguf {

class GgufWriter {
 public:
  GgufWriter& Text(const std::string& key, const std::string& value);
  GgufWriter& Integer(const std::string& key, uint32_t value);
  GgufWriter& Number(const std::string& key, float value);
  GgufWriter& Flag(const std::string& key, bool value);
  GgufWriter& Texts(const std::string& key, const std::vector<std::string>& values);
  GgufWriter& Integers(const std::string& key, const std::vector<int32_t>& values);
  GgufWriter& Numbers(const std::string& key, const std::vector<float>& values);
  // `sides`: columns first, as GGUF has them.
  GgufWriter& Tensor(const std::string& name, uint32_t type, const std::vector<uint64_t>& sides,
                     const std::string& data);
  GgufWriter& Remove(const std::string& tensor);

  std::string Bytes() const;

  uint32_t version = 3;

 private:
  struct Placed {
    std::string name;
    uint32_t type;
    std::vector<uint64_t> sides;
    std::string data;
  };
  std::string& Entry(const std::string& key, uint32_t kind);

  std::vector<std::pair<std::string, std::string>> metadata_;  // key, and kind with value
  std::vector<Placed> tensors_;
};

std::string FloatBytesOf(const std::vector<float>& values);

// A model of two layers, 64 wide, 4 heads over 2, with a byte-level tokenizer of 300 words.
// Matrices in Q4_0 but for the head in Q8_0; `architecture` is "llama", "qwen2", "qwen3" or
// "qwen3moe", which has three experts.
GgufWriter SmallModel(const std::string& architecture);

// As GGUF has Mixtral: SmallModel("llama") with three experts in the place of each dense layer.
GgufWriter SmallMixtral();

// Writes the file and returns its path, in a new folder.
std::string WriteGguf(const std::string& name, const std::string& bytes);

}  // namespace macrame::runtime::gguf
