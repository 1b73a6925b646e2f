#include "agentd/cores/log_guard.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "discovery/base/plain_text.h"

namespace macrame::agentd {
namespace {

bool IsIdDigit(char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); }

// Length of the IPv6 address that `text` begins with; 0: it begins with none.
size_t AddressLength(std::string_view text) {
  size_t length = 0;
  int colons = 0;
  for (; length < text.size() && (IsIdDigit(text[length]) || text[length] == ':'); ++length) {
    colons += text[length] == ':' ? 1 : 0;
  }
  return colons >= 2 ? length : 0;
}

// The first word of a kind: where its lines come from.
std::string PlaceOf(const std::string& kind) { return kind.substr(0, kind.find(' ')); }

uint32_t LinesMaxOf(std::string_view place) {
  for (const std::string_view method :
       {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}) {
    if (place == method) return kRequestLinesMax;
  }
  return kLinesPerKindMax;
}

}  // namespace

std::string EscapeLine(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  while (at < text.size() && out.size() < kLineBytesMax) {
    const size_t length = discovery::PlainCharacter(text.substr(at));
    if (length == 0) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(text[at]));
      ++at;
    } else {
      out.append(text.substr(at, length));
      at += length;
    }
  }
  if (at < text.size()) out.append("…");
  return out;
}

std::string KindOfLine(std::string_view text) {
  std::string kind;
  for (size_t at = 0; at < text.size() && kind.size() < 256;) {
    size_t end = at;
    bool has_digit = false;
    while (end < text.size() && IsIdDigit(text[end])) {
      has_digit |= absl::ascii_isdigit(static_cast<unsigned char>(text[end]));
      ++end;
    }
    if (const size_t address = AddressLength(text.substr(at)); address > 0) {
      kind.push_back('#');
      at += address;
      continue;
    }
    // A run of hex digits with a digit in it, or as long as an id.
    if (has_digit || end - at >= 8) {
      kind.push_back('#');
      at = end;
      continue;
    }
    if (end > at) {
      kind.append(text.substr(at, end - at));
      at = end;
      continue;
    }
    const size_t close = text[at] == '\'' ? text.find('\'', at + 1) : std::string_view::npos;
    if (close != std::string_view::npos) {
      kind.append("''");
      at = close + 1;
      continue;
    }
    kind.push_back(text[at++]);
  }
  return kind;
}

uint64_t LogGuard::BeginWindow(const std::string& name, MonotonicTime now) {
  uint64_t missing = std::exchange(left_out_, 0);
  since_ = now;
  written_ = 0;
  // What began longer ago than a window is as good as new, but for what it left out.
  std::erase_if(kinds_, [&](const auto& item) {
    const bool is_old = item.first != name && now - item.second.since >= kLogWindow;
    if (is_old) missing += item.second.left_out;
    return is_old;
  });
  places_.clear();
  for (const auto& [kind, counts] : kinds_) ++places_[PlaceOf(kind)].kinds;
  return missing;
}

bool LogGuard::HasRoom(const std::string& name, const Place& place) const {
  if (place.written >= kLinesPerPlaceMax) return false;
  if (kinds_.contains(name)) return true;
  return kinds_.size() < kLineKindsMax && place.kinds < kLineKindsPerPlaceMax;
}

std::optional<std::string> LogGuard::Take(std::string_view text, MonotonicTime now) {
  const bool is_new_window = written_ == 0 || now - since_ >= kLogWindow;
  if (!is_new_window && written_ >= kLinesMax) {
    ++left_out_;
    return std::nullopt;
  }
  const std::string name = KindOfLine(text);
  const uint64_t missing = is_new_window ? BeginWindow(name, now) : 0;
  const std::string place_name = PlaceOf(name);
  const auto known_place = places_.find(place_name);
  if (!HasRoom(name, known_place == places_.end() ? Place() : known_place->second)) {
    left_out_ += missing + 1;
    return std::nullopt;
  }
  const auto [found, is_new_kind] = kinds_.try_emplace(name);
  Kind& kind = found->second;
  Place& place = places_[place_name];
  if (is_new_kind) ++place.kinds;
  uint64_t alike = 0;
  if (kind.written == 0 || now - kind.since >= kLogWindow) {
    alike = std::exchange(kind.left_out, 0);
    kind.since = now;
    kind.written = 0;
  }
  if (kind.written >= LinesMaxOf(place_name)) {
    ++kind.left_out;
    left_out_ += missing;
    return std::nullopt;
  }
  ++kind.written;
  ++place.written;
  ++written_;
  std::string line = EscapeLine(text);
  if (alike > 0) absl::StrAppend(&line, " (and ", alike, " lines like this one were left out)");
  if (missing > 0) absl::StrAppend(&line, " (", missing, " other lines were left out before)");
  return line;
}

}  // namespace macrame::agentd
