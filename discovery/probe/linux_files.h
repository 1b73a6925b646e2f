#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace macrame::discovery {

inline constexpr size_t kProcFileBytesMax = size_t{1} << 20;

// Up to kProcFileBytesMax bytes of a file; empty when it can't be read.
std::string ReadFile(const std::string& path);
// Its first line, trimmed.
std::string ReadLine(const std::string& path);
std::optional<uint64_t> ReadNumber(const std::string& path);

}  // namespace macrame::discovery
