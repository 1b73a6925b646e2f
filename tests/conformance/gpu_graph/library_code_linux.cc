#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "tests/conformance/gpu_graph/library_code.h"

namespace macrame::gpu_graph {
namespace {

// mov $value, %eax; ret
constexpr size_t kReturnBytes = 6;
// movabs $address, %rax; jmp *%rax
constexpr size_t kJumpBytes = 12;

template <typename T>
const T* At(const std::vector<char>& file, uint64_t offset, uint64_t count,
            const std::string& path) {
  if (offset > file.size() || count > (file.size() - offset) / sizeof(T)) {
    throw std::runtime_error(path + " is cut off");
  }
  return reinterpret_cast<const T*>(file.data() + offset);
}

}  // namespace

LibraryCode::LibraryCode(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
    throw std::runtime_error("the library's file is not known to the loader");
  }
  path_ = info.dli_fname;
  std::ifstream in(path_, std::ios::binary);
  const std::vector<char> file{std::istreambuf_iterator<char>(in), {}};
  const auto& header = *At<Elf64_Ehdr>(file, 0, 1, path_);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != EM_X86_64) {
    throw std::runtime_error(path_ + " is not a library for x86-64");
  }
  const auto* sections = At<Elf64_Shdr>(file, header.e_shoff, header.e_shnum, path_);
  for (int i = 0; i < header.e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const uint64_t count = sections[i].sh_size / sizeof(Elf64_Sym);
    const auto* symbols = At<Elf64_Sym>(file, sections[i].sh_offset, count, path_);
    const Elf64_Shdr& names = sections[sections[i].sh_link];
    const char* text = At<char>(file, names.sh_offset, names.sh_size, path_);
    for (uint64_t s = 0; s < count; ++s) {
      const Elf64_Sym& symbol = symbols[s];
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF) continue;
      if (symbol.st_name >= names.sh_size) continue;
      functions_[text + symbol.st_name] = {
          reinterpret_cast<uintptr_t>(info.dli_fbase) + symbol.st_value, symbol.st_size};
    }
  }
  if (functions_.empty()) {
    throw std::runtime_error(path_ + " has no symbol table: take the library as PyPI has it");
  }
}

const LibraryCode::Function& LibraryCode::Known(const std::string& name) const {
  const auto found = functions_.find(name);
  if (found == functions_.end()) {
    throw std::runtime_error(path_ + " has no function " + name +
                             ": MLX has changed, and the stand-in GPU has to follow");
  }
  return found->second;
}

void* LibraryCode::Find(const std::string& name) const {
  return reinterpret_cast<void*>(Known(name).address);
}

void LibraryCode::Overwrite(const std::string& name, const unsigned char* code, size_t bytes) {
  const Function& function = Known(name);
  if (function.bytes < bytes) {
    throw std::runtime_error(path_ + ": the code of " + name + " is too short to be replaced");
  }
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = function.address & ~(page - 1);
  const size_t size = ((function.address + bytes - begin) + page - 1) & ~(page - 1);
  auto* const pages = reinterpret_cast<void*>(begin);
  if (mprotect(pages, size, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
    throw std::runtime_error("the system refuses to make the code of " + path_ + " writable");
  }
  std::memcpy(reinterpret_cast<void*>(function.address), code, bytes);
  mprotect(pages, size, PROT_READ | PROT_EXEC);
}

void LibraryCode::ReturnAlways(const std::string& name, int32_t value) {
  unsigned char code[kReturnBytes] = {0xB8, 0, 0, 0, 0, 0xC3};
  std::memcpy(code + 1, &value, sizeof(value));
  Overwrite(name, code, sizeof(code));
}

void LibraryCode::Replace(const std::string& name, const void* other) {
  unsigned char code[kJumpBytes] = {0x48, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xE0};
  std::memcpy(code + 2, &other, sizeof(other));
  Overwrite(name, code, sizeof(code));
}

}  // namespace macrame::gpu_graph
