// What a model writes: reasoning and tool calls of every family. The first byte chooses the family,
// the second how the rest is cut.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/unit/runtime/serving/markup/transcripts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace macrame::runtime::markup;
  if (size < 2) return 0;
  const auto& cases = TranscriptCases();
  TranscriptCase transcript = cases[data[0] % cases.size()];
  const size_t stride = 1 + data[1] % 7;
  transcript.text.assign(reinterpret_cast<const char*>(data) + 2, size - 2);
  transcript.is_cut = data[1] % 2 == 1;
  std::vector<size_t> cuts;
  for (size_t cut = stride; cut < transcript.text.size(); cut += stride) cuts.push_back(cut);
  const std::string told = Told(EventsOf(transcript, cuts));
  if (told != Told(EventsOf(transcript, {}))) abort();   // cuts change nothing
  if (told.find("stray") != std::string::npos) abort();  // pieces of a call lie in it
  return 0;
}
