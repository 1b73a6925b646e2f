#pragma once

// How much memory a message takes once it is parsed, told from its bytes alone: an empty part of
// two bytes becomes an object of some hundred bytes, so that 8 MiB of empty messages of a chat took
// 416 MiB (Protobuf 3.21). Internal to transport/. Any thread.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <cstddef>
#include <optional>

namespace macrame::transport {

// What a request may take: twice kMessageBytesMax (peer_channel.h), so that texts always fit.
inline constexpr size_t kParsedBytesMax = size_t{16} << 20;

// At least what Message::SpaceUsedLong says of such a message once it is parsed, lists as large as
// their growth may leave them. Counting ends where it is above kParsedBytesMax. Nothing: the `size`
// bytes are no such message; what the parser takes is one.
std::optional<size_t> ParsedBytes(const google::protobuf::Descriptor& type,
                                  google::protobuf::io::ZeroCopyInputStream* bytes, size_t size);

}  // namespace macrame::transport
