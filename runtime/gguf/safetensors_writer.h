#pragma once

// Writes one safetensors file whose tensors' names and sizes are known beforehand; their bytes may
// come in any order. One thread. Errors: DISK_WRITE_FAILED, with the system's message.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace macrame::runtime::gguf {

struct NewTensor {
  std::string name;
  std::string dtype;  // as safetensors spells it
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
};

class SafetensorsWriter {
 public:
  // Writes the header; tensors lie in the file as they stand in the list.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path, const std::vector<NewTensor>& tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // `offset`: within the tensor, which must be one of the list and hold the bytes (checked).
  absl::Status Write(const std::string& tensor, uint64_t offset, const void* data, uint64_t bytes);
  // What is written is in the system's hands then, not yet on the disk.
  absl::Status Close();

 private:
  SafetensorsWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  absl::Status WriteAt(uint64_t position, const void* data, uint64_t bytes);

  struct Place {
    uint64_t begin;
    uint64_t bytes;
  };
  const std::string path_;
  int fd_;
  std::map<std::string, Place> places_;
};

}  // namespace macrame::runtime::gguf
