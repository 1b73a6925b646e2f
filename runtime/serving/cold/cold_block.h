#pragma once

// One KV block as a file of the cold tier: what a rank's shard of it holds, which tokens it is of,
// and a checksum over all of it. Pure.
//
// The content decides what a model answers, so a file is taken only when every byte is right: its
// size, its layout, its tokens and the SHA-256 at its end. There is nothing to repair in one.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serving/cache/prefix_index.h"

namespace macrame::runtime::engine {

// Which files a rank can use: those of the same model, computed and laid out in the same way.
struct ColdLayout {
  BlockName id{};            // SHA-256 over everything that decides a block's bytes
  size_t content_bytes = 0;  // of one block in all of this rank's layers
};

enum class ColdFault : uint8_t { kNone, kSize, kLayout, kTokens, kChecksum };

size_t ColdFileBytes(const ColdLayout& layout);
std::string EncodeColdFile(const ColdLayout& layout, const ColdBlock& block,
                           std::span<const std::byte> content);
// Why `file` can't be taken for `block`; kNone: `content` is a view of it.
ColdFault CheckColdFile(const ColdLayout& layout, const ColdBlock& block, std::string_view file,
                        std::string_view* content);

// "v1-" and 32 hex digits: the folder of a layout's files. The digit is the format's version.
std::string ColdFolderName(const ColdLayout& layout);
// 64 hex digits and ".kv".
std::string ColdFileName(const BlockName& name);
bool IsColdFolderName(std::string_view name);
std::optional<BlockName> ParseColdFileName(std::string_view name);

}  // namespace macrame::runtime::engine
