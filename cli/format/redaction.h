#pragma once

// Text without what nobody else may have. Pure.

#include <string>
#include <string_view>

namespace macrame::cli {

// The same lines with "[redacted]" in the place of what stands behind a word that says that it is a
// secret (key, token, secret, password, authorization) and is no path or switch, of PEM blocks, and
// of join tokens.
std::string Redacted(std::string_view text);

}  // namespace macrame::cli
