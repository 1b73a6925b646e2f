// A tokenizer that others made, and texts that clients send, through the C ABI. An input is a
// tokenizer.json when it begins with a brace: it loads or is refused in a sentence, and then makes
// ids of a text, within its bounds. Any other input is a text for the tests' own tokenizers: what
// is plain comes back whole.

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "proto/reasons.h"
#include "runtime/text/tokenizer.h"

namespace {

using namespace macrame::runtime::text;

constexpr char kSaid[] = "a ab 12345  <|end|> é\n";
constexpr size_t kTokensMax = 4096;

void CheckRefusal(const absl::Status& status) {
  if (macrame::ReasonOf(status).message().empty()) abort();
}

void Use(const Tokenizer& tokenizer, const std::string& text) {
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.Encode(text, special, special, kTokensMax);
    if (!ids.ok()) {
      CheckRefusal(ids.status());
      continue;
    }
    for (const int32_t id : *ids) {
      if (id < 0) abort();
    }
    tokenizer.Decode(*ids, /*skip_special_tokens=*/true).status().IgnoreError();
    StreamDecoder stream = tokenizer.NewStream(true);
    for (const int32_t id : *ids) stream.Push(id);
    stream.Finish();
  }
}

const std::string& TheFolder() {
  // Never destroyed: it is needed at the very end.
  static const auto* const folder = [] {
    auto* name = new std::string("/tmp/macrame-fuzz-XXXXXX");
    if (mkdtemp(name->data()) == nullptr) abort();
    std::atexit([] {
      unlink((TheFolder() + "/tokenizer.json").c_str());
      rmdir(TheFolder().c_str());
    });
    return name;
  }();
  return *folder;
}

void LoadAndUse(const uint8_t* data, size_t size) {
  std::FILE* file = std::fopen((TheFolder() + "/tokenizer.json").c_str(), "wb");
  if (file == nullptr || std::fwrite(data, 1, size, file) != size) abort();
  std::fclose(file);
  const auto tokenizer = Tokenizer::Load(TheFolder());
  if (!tokenizer.ok()) return CheckRefusal(tokenizer.status());
  Use(*tokenizer, kSaid);
}

// The tests run in the root of the tree.
const std::vector<Tokenizer>& OwnTokenizers() {
  static const auto* const own = [] {
    auto* made = new std::vector<Tokenizer>();
    for (const char* name : {"byte_level", "byte_fallback", "unigram"}) {
      auto tokenizer = Tokenizer::Load(std::string("tests/unit/runtime/text/testdata/") + name);
      if (!tokenizer.ok()) abort();
      made->push_back(*std::move(tokenizer));
    }
    return made;
  }();
  return *own;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0 && data[0] == '{') {
    LoadAndUse(data, size);
    return 0;
  }
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const Tokenizer& tokenizer : OwnTokenizers()) Use(tokenizer, text);
  return 0;
}
