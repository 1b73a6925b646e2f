#pragma once

// Whether the files of a model's folder are what was downloaded. Reads all of them whole, past the
// page cache where the system can, so that loaded models keep their pages. Blocks for as long as
// the disk takes: for a thread of its own.
//
// A file's checksum is compared with the one that the download left beside it, which tools of
// Hugging Face do: the file's blob in the cache is named by it, and a download into a plain folder
// notes it in .cache/huggingface/download/NAME.metadata (both are SHA-256 of large files, and git's
// SHA-1 of a blob of small ones). Without one, a shard's own header still says how long the file
// is, and the names of shards ("-00002-of-00004") how many there are.

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "macrame/v1/operation.pb.h"

namespace macrame::runtime {

inline constexpr size_t kIntegrityFilesMax = 4096;
// Of a shard's header; what says more is no header.
inline constexpr uint64_t kHeaderBytesMax = uint64_t{100} << 20;

// Called again and again; false ends the reading.
using OnBytesRead = std::function<bool(uint64_t bytes_read, uint64_t bytes_total)>;

// `model`, `path` and `files` of the answer are set; a state is AS_DOWNLOADED, READ, MISSING,
// TRUNCATED, ALTERED or UNREADABLE. CANCELLED when `on_read` said false; NOT_FOUND without a
// folder, UNAVAILABLE when it can't be listed whole.
absl::StatusOr<v1::NodeModelFiles> ReadModelFiles(const std::string& model,
                                                  const std::string& folder,
                                                  const OnBytesRead& on_read);

// How long a file with this header is as a whole: eight bytes, the header, and the tensors that it
// names. 0: it can't be told. `header`: without the eight bytes.
uint64_t BytesByHeader(std::string_view header);

}  // namespace macrame::runtime
