#include "runtime/supervisor/stack_sample.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "runtime/supervisor/last_lines.h"

namespace macrame::runtime {
namespace {

constexpr std::array<absl::string_view, 3> kTellingParts = {kFenceWait, "tbt_", "ibv_"};

// "    +     ! 812 f(int)  (in libmlx.dylib) + 212  [0x104a3c]" is "f(int) (in libmlx.dylib)".
std::string CallOf(absl::string_view line) {
  const size_t begin = std::min(line.find_first_not_of(" \t+!:|0123456789"), line.size());
  line.remove_prefix(begin);
  const size_t image = line.find("(in ");
  if (image != absl::string_view::npos) {
    const size_t end = line.find(')', image);
    if (end != absl::string_view::npos) line = line.substr(0, end + 1);
  }
  std::string call(line);
  if (const size_t gap = call.find("  (in "); gap != std::string::npos) call.erase(gap, 1);
  return ReportLine(call);
}

// A name that begins so, not one that has it in its middle.
bool Names(absl::string_view call, absl::string_view part) {
  const size_t at = call.find(part);
  if (at == absl::string_view::npos) return false;
  return at == 0 || !absl::ascii_isalnum(static_cast<unsigned char>(call[at - 1]));
}

}  // namespace

std::vector<std::string> TellingCalls(std::string_view sample) {
  absl::string_view text(sample.data(), std::min(sample.size(), kStackSampleBytesMax));
  const size_t begin = text.find("Call graph:");
  if (begin == absl::string_view::npos) return {};
  text = text.substr(begin);
  // What follows counts the same calls again, and lists the libraries.
  text = text.substr(0, text.find("\nTotal number in stack"));
  std::vector<std::string> calls;
  for (const absl::string_view part : kTellingParts) {
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      if (calls.size() >= kTellingCallsMax) return calls;
      if (!absl::StrContains(line, part)) continue;
      std::string call = CallOf(line);
      if (!Names(call, part)) continue;
      if (std::find(calls.begin(), calls.end(), call) == calls.end()) {
        calls.push_back(std::move(call));
      }
    }
  }
  return calls;
}

}  // namespace macrame::runtime
