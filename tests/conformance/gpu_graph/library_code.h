#pragma once

// Functions of a library that is loaded in this process: found in the symbol table of its file,
// which also names those that the library does not export, and replaced in memory. Linux on x86-64;
// main thread, before any other thread calls into the library.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace macrame::gpu_graph {

class LibraryCode {
 public:
  // The library that `address` is in. Throws std::runtime_error where its file can't be read or has
  // no symbol table.
  explicit LibraryCode(const void* address);

  // A function by its mangled name. Throws std::runtime_error, with that name, where there is none.
  void* Find(const std::string& name) const;
  // From now on a call of the function gives this number, or runs that other function of the same
  // signature. Throws where there is no such function, or where its code is too short for that.
  void ReturnAlways(const std::string& name, int32_t value);
  void Replace(const std::string& name, const void* other);

 private:
  struct Function {
    uintptr_t address = 0;
    size_t bytes = 0;
  };
  const Function& Known(const std::string& name) const;
  void Overwrite(const std::string& name, const unsigned char* code, size_t bytes);

  std::string path_;
  std::map<std::string, Function> functions_;
};

}  // namespace macrame::gpu_graph
