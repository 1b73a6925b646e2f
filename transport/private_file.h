#pragma once

// Files that only their user may read: secrets, memberships, access files, keys of certificates.
// `kind` is what errors call the file. Any thread.

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace macrame::transport {

inline constexpr size_t kPrivateFileBytesMax = 64 * 1024;

// NOT_FOUND when there is no file; PERMISSION_DENIED when others may read it or it is another
// user's (the message names the command that fixes it); INVALID_ARGUMENT when it is no file, or
// larger than kPrivateFileBytesMax.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, const char* kind);

// Mode 0700. One that is there stays as it is; so does none at all (an empty path).
absl::Status MakePrivateFolder(const std::filesystem::path& folder);

// Mode 0600; its folder is made (0700) where there is none. ALREADY_EXISTS when there is a file.
absl::Status WriteNewPrivateFile(const std::string& path, const std::string& text);
// The same in one step: a reader finds the old file or the new one.
absl::Status ReplacePrivateFile(const std::string& path, const std::string& text);

}  // namespace macrame::transport
