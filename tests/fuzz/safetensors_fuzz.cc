// The head of a file of weights, through the Rust library: what it says must hold within the file.

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "proto/reasons.h"
#include "runtime/text/safetensors_header.h"

namespace {

const std::string& TheFile() {
  // Never destroyed: it is needed at the very end.
  static const auto* const path = [] {
    auto* name = new std::string("/tmp/macrame-fuzz-XXXXXX");
    const int fd = mkstemp(name->data());
    if (fd < 0) abort();
    close(fd);
    std::atexit([] { unlink(TheFile().c_str()); });
    return name;
  }();
  return *path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::FILE* file = std::fopen(TheFile().c_str(), "wb");
  if (file == nullptr) abort();
  if (size > 0 && std::fwrite(data, 1, size, file) != size) abort();
  std::fclose(file);
  const auto header = macrame::runtime::text::ReadSafetensorsHeader(TheFile());
  if (!header.ok()) {
    if (macrame::ReasonOf(header.status()).code() != "MODEL_FILE_BROKEN") abort();
    return 0;
  }
  uint64_t end = 0;
  for (const auto& tensor : header->tensors) {
    if (tensor.begin > tensor.end || tensor.end > size) abort();
    if (end != 0 && tensor.begin != end) abort();
    end = tensor.end;
  }
  return 0;
}
