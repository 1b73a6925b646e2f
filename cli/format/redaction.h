#pragma once

// Text without what no reader of it may have. Pure.

#include <string>
#include <string_view>

namespace macrame::cli {

// The same lines with "[redacted]" in the place of:
// - what a key that names a secret is given (password, token, x-api-key, webhook, …), in JSON,
//   YAML, headers, flags and settings, with its lists, maps and text over several lines. Switches,
//   counts, and paths of files that hold the secret stay;
// - users, paths and queries of URLs;
// - PEM blocks, API keys, join tokens, and credentials behind "Basic" and "Bearer".
// In doubt, too much goes. Twice redacted is the same.
std::string Redacted(std::string_view text);

}  // namespace macrame::cli
