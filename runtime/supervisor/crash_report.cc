#include "runtime/supervisor/crash_report.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/supervisor/last_lines.h"

namespace macrame::runtime {
namespace {

constexpr size_t kReportDepthMax = 64;
constexpr size_t kTopFramesMax = 3;
constexpr char kCrashBugType[] = "309";
// Where a program that aborts passes through.
constexpr std::array<absl::string_view, 4> kAbortImages = {"libsystem_", "libc++abi", "libdispatch",
                                                           "libobjc"};

// Where values are nested deeper than any report's, the text is not given to the JSON reader: it
// would take memory for each level.
bool IsTooDeep(absl::string_view json) {
  size_t depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text) {
      if (c == '\\') ++i;
      if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kReportDepthMax) return true;
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return false;
}

nlohmann::json JsonOf(absl::string_view text) {
  if (IsTooDeep(text)) return nlohmann::json();
  return nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

// Each of these gives something empty for what is not there or of another type.
const nlohmann::json& Member(const nlohmann::json& object, const char* name) {
  static const nlohmann::json nothing;
  if (!object.is_object()) return nothing;
  const auto found = object.find(name);
  return found == object.end() ? nothing : *found;
}

const nlohmann::json& Element(const nlohmann::json& list, uint64_t index) {
  static const nlohmann::json nothing;
  return list.is_array() && index < list.size() ? list[index] : nothing;
}

std::string TextOf(const nlohmann::json& object, const char* name) {
  const nlohmann::json& value = Member(object, name);
  return value.is_string() ? ReportLine(value.get_ref<const std::string&>()) : "";
}

std::optional<uint64_t> NumberOf(const nlohmann::json& object, const char* name) {
  const nlohmann::json& value = Member(object, name);
  if (!value.is_number_unsigned()) return std::nullopt;
  return value.get<uint64_t>();
}

std::string FrameLine(size_t index, absl::string_view image, absl::string_view where) {
  return ReportLine(absl::StrCat(index, " ", image.empty() ? "?" : image, " ", where));
}

std::string ImageOf(const nlohmann::json& images, const nlohmann::json& frame) {
  const std::optional<uint64_t> index = NumberOf(frame, "imageIndex");
  if (!index.has_value()) return "";
  const nlohmann::json& image = Element(images, *index);
  std::string name = TextOf(image, "name");
  if (!name.empty()) return name;
  const std::string path = TextOf(image, "path");
  return path.substr(path.rfind('/') + 1);
}

const nlohmann::json& CrashedThread(const nlohmann::json& body) {
  const nlohmann::json& threads = Member(body, "threads");
  if (const auto index = NumberOf(body, "faultingThread"); index.has_value()) {
    return Element(threads, *index);
  }
  for (size_t i = 0; threads.is_array() && i < threads.size(); ++i) {
    if (Member(threads[i], "triggered") == true) return threads[i];
  }
  return Element(threads, 0);
}

// "asi" has lists of sentences, by the library that wrote them.
std::string NoteOfLibraries(const nlohmann::json& body) {
  const nlohmann::json& by_library = Member(body, "asi");
  if (!by_library.is_object()) return "";
  for (const nlohmann::json& sentences : by_library) {
    const nlohmann::json& first = Element(sentences, 0);
    if (first.is_string()) return ReportLine(first.get_ref<const std::string&>());
  }
  return "";
}

std::string WithSubtype(const std::string& type, const std::string& subtype) {
  return subtype.empty() ? type : ReportLine(absl::StrCat(type, ", ", subtype));
}

std::optional<CrashReport> ParseJsonForm(absl::string_view text) {
  const nlohmann::json body = JsonOf(text);
  const nlohmann::json& exception = Member(body, "exception");
  CrashReport report;
  report.pid = NumberOf(body, "pid").value_or(0);
  report.program = TextOf(body, "procName");
  report.exception = TextOf(exception, "type");
  const std::string signal = TextOf(exception, "signal");
  if (!signal.empty()) absl::StrAppend(&report.exception, " (", signal, ")");
  report.exception = WithSubtype(report.exception, TextOf(exception, "subtype"));
  report.note = NoteOfLibraries(body);
  const nlohmann::json& frames = Member(CrashedThread(body), "frames");
  const size_t count = frames.is_array() ? std::min(frames.size(), kCrashFramesMax) : 0;
  for (size_t i = 0; i < count; ++i) {
    std::string where = TextOf(frames[i], "symbol");
    if (where.empty()) {
      where = absl::StrCat("+ ", NumberOf(frames[i], "imageOffset").value_or(0));
    }
    report.frames.push_back(FrameLine(i, ImageOf(Member(body, "usedImages"), frames[i]), where));
  }
  if (report.exception.empty() && report.frames.empty()) return std::nullopt;
  return report;
}

// "rankd [4711]"
void ReadProcess(absl::string_view words, CrashReport& report) {
  const size_t open = words.rfind('[');
  if (open == absl::string_view::npos) return;
  report.program = ReportLine(absl::StripAsciiWhitespace(words.substr(0, open)));
  const absl::string_view number = words.substr(open + 1);
  uint64_t pid = 0;
  if (absl::SimpleAtoi(number.substr(0, number.find(']')), &pid)) report.pid = pid;
}

// "3   libmlx.dylib   0x0000000104a3c  mlx::core::eval(…) + 84", the address left out at times.
bool ReadFrame(absl::string_view line, CrashReport& report) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  size_t index = 0;
  if (words.size() < 3 || !absl::SimpleAtoi(words[0], &index)) return false;
  size_t first = absl::StartsWith(words[2], "0x") && words.size() > 3 ? 3 : 2;
  size_t end = words.size();
  // "symbol + 84"; without a symbol, "0x104000000 + 84".
  if (absl::StartsWith(words[first], "0x")) {
    ++first;
  } else if (end > first + 2 && words[end - 2] == "+") {
    end -= 2;
  }
  const auto at = [&](size_t i) { return words.begin() + static_cast<std::ptrdiff_t>(i); };
  const std::string where = first < end ? absl::StrJoin(at(first), at(end), " ") : "?";
  report.frames.push_back(FrameLine(index, words[1], where));
  return true;
}

std::optional<CrashReport> ParseTextForm(absl::string_view text) {
  CrashReport report;
  std::string subtype;
  bool in_crashed_thread = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (in_crashed_thread && report.frames.size() < kCrashFramesMax && ReadFrame(line, report)) {
      continue;
    }
    in_crashed_thread = absl::StartsWith(line, "Thread ") && absl::StrContains(line, " Crashed:") &&
                        report.frames.empty();
    if (absl::ConsumePrefix(&line, "Process:")) {
      ReadProcess(line, report);
    } else if (absl::ConsumePrefix(&line, "Exception Type:")) {
      report.exception = ReportLine(absl::StripLeadingAsciiWhitespace(line));
    } else if (absl::ConsumePrefix(&line, "Exception Subtype:") ||
               (absl::ConsumePrefix(&line, "Exception Codes:") &&
                absl::StrContains(line, "KERN_"))) {
      subtype = ReportLine(absl::StripLeadingAsciiWhitespace(line));
    }
  }
  report.exception = WithSubtype(report.exception, subtype);
  if (report.exception.empty()) return std::nullopt;
  return report;
}

// "0x0000000000000010" is 0x10. A null pointer that is spelt in full is known as MLX's crash on a
// device that is not there, so it stays in full only where a call of verbs is in the stack.
void ShortenAddress(CrashReport& report) {
  const bool is_verbs =
      std::any_of(report.frames.begin(), report.frames.end(),
                  [](const std::string& frame) { return absl::StrContains(frame, " ibv_"); });
  const size_t at = report.exception.find("0x0");
  if (is_verbs || at == std::string::npos) return;
  size_t end = at + 2;
  while (end + 1 < report.exception.size() && report.exception[end] == '0' &&
         absl::ascii_isxdigit(static_cast<unsigned char>(report.exception[end + 1]))) {
    ++end;
  }
  report.exception.erase(at + 2, end - at - 2);
}

}  // namespace

std::string CrashReport::Text() const {
  std::vector<std::string> lines;
  if (!exception.empty()) lines.push_back(exception);
  if (!note.empty()) lines.push_back(note);
  lines.insert(lines.end(), frames.begin(), frames.end());
  std::string text;
  for (const std::string& line : lines) {
    if (text.size() + 1 + line.size() > kCrashTextBytesMax) break;
    absl::StrAppend(&text, text.empty() ? "" : "\n", line);
  }
  return text;
}

std::string CrashReport::TopFrames() const {
  const auto is_own = [](const std::string& frame) {
    const absl::string_view image = absl::string_view(frame).substr(frame.find(' ') + 1);
    return std::none_of(kAbortImages.begin(), kAbortImages.end(),
                        [&](absl::string_view name) { return absl::StartsWith(image, name); });
  };
  auto first = std::find_if(frames.begin(), frames.end(), is_own);
  if (first == frames.end()) first = frames.begin();
  const auto count = std::min<std::ptrdiff_t>(frames.end() - first, kTopFramesMax);
  return absl::StrJoin(first, first + count, ", ");
}

std::optional<CrashReport> ParseCrashReport(std::string_view text) {
  absl::string_view rest(text.data(), text.size());
  if (rest.size() > kCrashReportBytesMax) return std::nullopt;
  std::optional<CrashReport> report;
  if (absl::StartsWith(rest, "{")) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const nlohmann::json header = JsonOf(rest.substr(0, end));
    rest = absl::StripLeadingAsciiWhitespace(rest.substr(end));
    const bool is_json = absl::StartsWith(rest, "{");
    if (is_json && TextOf(header, "bug_type") != kCrashBugType) return std::nullopt;
    report = is_json ? ParseJsonForm(rest) : ParseTextForm(rest);
  } else {
    report = ParseTextForm(rest);
  }
  if (report.has_value()) ShortenAddress(*report);
  return report;
}

}  // namespace macrame::runtime
