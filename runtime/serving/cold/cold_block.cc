#include "runtime/serving/cold/cold_block.h"

#include <algorithm>
#include <boost/algorithm/hex.hpp>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/check.h"

namespace macrame::runtime::engine {
namespace {

constexpr std::string_view kMagic = "MACRKVB1";
constexpr std::string_view kFolderPrefix = "v1-";
constexpr std::string_view kFileSuffix = ".kv";
constexpr size_t kFolderDigits = 32;
constexpr size_t kNameBytes = sizeof(BlockName);
constexpr size_t kTokenBytes = 4 * kBlockTokens;
// Magic, layout, parent and tokens.
constexpr size_t kHeadBytes = 8 + 2 * kNameBytes + kTokenBytes;

std::string_view ViewOf(const BlockName& name) {
  return {reinterpret_cast<const char*>(name.data()), name.size()};
}

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string Hex(std::string_view bytes) {
  return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
}

}  // namespace

size_t ColdFileBytes(const ColdLayout& layout) {
  return kHeadBytes + layout.content_bytes + kNameBytes;
}

std::string EncodeColdFile(const ColdLayout& layout, const ColdBlock& block,
                           std::span<const std::byte> content) {
  MACRAME_CHECK(content.size() == layout.content_bytes)
      << content.size() << " bytes of a block of " << layout.content_bytes;
  std::string file;
  file.reserve(ColdFileBytes(layout));
  file += kMagic;
  file += ViewOf(layout.id);
  file += ViewOf(block.parent);
  file += TokenBytes(block.tokens);
  file.append(reinterpret_cast<const char*>(content.data()), content.size());
  file += ViewOf(DigestOf(file));
  return file;
}

ColdFault CheckColdFile(const ColdLayout& layout, const ColdBlock& block, std::string_view file,
                        std::string_view* content) {
  if (file.size() != ColdFileBytes(layout)) return ColdFault::kSize;
  if (file.substr(0, 8) != kMagic || file.substr(8, kNameBytes) != ViewOf(layout.id)) {
    return ColdFault::kLayout;
  }
  if (file.substr(8 + kNameBytes, kNameBytes) != ViewOf(block.parent) ||
      file.substr(8 + 2 * kNameBytes, kTokenBytes) != TokenBytes(block.tokens)) {
    return ColdFault::kTokens;
  }
  const size_t summed = file.size() - kNameBytes;
  if (file.substr(summed) != ViewOf(DigestOf(file.substr(0, summed)))) return ColdFault::kChecksum;
  *content = file.substr(kHeadBytes, layout.content_bytes);
  return ColdFault::kNone;
}

std::string ColdFolderName(const ColdLayout& layout) {
  return std::string(kFolderPrefix) + Hex(ViewOf(layout.id)).substr(0, kFolderDigits);
}

std::string ColdFileName(const BlockName& name) {
  return Hex(ViewOf(name)) + std::string(kFileSuffix);
}

bool IsColdFolderName(std::string_view name) {
  return name.size() == kFolderPrefix.size() + kFolderDigits && name.starts_with(kFolderPrefix) &&
         IsHex(name.substr(kFolderPrefix.size()));
}

std::optional<BlockName> ParseColdFileName(std::string_view name) {
  if (name.size() != 2 * kNameBytes + kFileSuffix.size() || !name.ends_with(kFileSuffix) ||
      !IsHex(name.substr(0, 2 * kNameBytes))) {
    return std::nullopt;
  }
  const std::string bytes = boost::algorithm::unhex(std::string(name.substr(0, 2 * kNameBytes)));
  BlockName parsed;
  std::memcpy(parsed.data(), bytes.data(), parsed.size());
  return parsed;
}

}  // namespace macrame::runtime::engine
