#pragma once

#include <openssl/crypto.h>

#include <string>

namespace macrame::transport {

// Overwrites what `text` holds, in a way that no compiler leaves out, and empties it. Copies that
// were made elsewhere stay.
inline void Wipe(std::string& text) {
  // Its whole room: what was cut off is there still.
  text.resize(text.capacity());
  OPENSSL_cleanse(text.data(), text.size());
  text.clear();
}

}  // namespace macrame::transport
