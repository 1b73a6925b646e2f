#include "agentd/cores/audit_chain.h"

#include <openssl/sha.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace macrame::agentd {
namespace {

constexpr absl::string_view kHashMember = R"(,"hash":")";
constexpr absl::string_view kEnd = R"("})";
constexpr size_t kHashDigits = 64;

std::string LineHash(absl::string_view text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest)));
}

std::string TimeText(uint64_t unix_ms) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ",
                          absl::FromUnixMillis(static_cast<int64_t>(unix_ms)), absl::UTCTimeZone());
}

}  // namespace

std::string ComposeAuditLine(const AuditEntry& entry, AuditTail* tail) {
  nlohmann::ordered_json line;
  line["seq"] = tail->sequence + 1;
  line["unix_ms"] = entry.unix_ms;
  line["time"] = TimeText(entry.unix_ms);
  for (const auto& [name, text] :
       {std::pair("who", &entry.who), std::pair("what", &entry.what),
        std::pair("target", &entry.target), std::pair("from", &entry.from),
        std::pair("outcome", &entry.outcome)}) {
    line[name] = text->substr(0, kAuditTextBytesMax);
  }
  if (entry.left_out > 0) line["left_out"] = entry.left_out;
  line["prev"] = tail->hash;
  // Escaped to ASCII, so that a line is a line whatever was in a name.
  std::string text = line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  text.pop_back();
  const std::string hash = LineHash(text);
  ++tail->sequence;
  tail->hash = hash;
  return absl::StrCat(text, kHashMember, hash, kEnd, "\n");
}

std::optional<AuditLine> ReadAuditLine(absl::string_view line) {
  const size_t ending = kHashMember.size() + kHashDigits + kEnd.size();
  if (line.size() <= ending) return std::nullopt;
  const absl::string_view text = line.substr(0, line.size() - ending);
  const nlohmann::json parsed =
      nlohmann::json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return std::nullopt;
  const auto number = [&](const char* name) {
    const auto found = parsed.find(name);
    return found != parsed.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
  };
  const auto word = [&](const char* name) {
    const auto found = parsed.find(name);
    return found != parsed.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  AuditLine read{number("seq"), number("unix_ms"), word("prev"), word("hash")};
  const bool whole = line == absl::StrCat(text, kHashMember, read.hash, kEnd);
  if (!whole || read.sequence == 0 || read.hash != LineHash(text)) return std::nullopt;
  return read;
}

std::string AuditVerifier::Take(absl::string_view line) {
  const std::optional<AuditLine> read = ReadAuditLine(line);
  if (!read.has_value()) return "the line was changed, or is none";
  if (entries_ > 0 && read->sequence != tail_.sequence + 1) {
    return absl::StrCat("entry ", read->sequence, " follows entry ", tail_.sequence);
  }
  if (entries_ > 0 && read->prev != tail_.hash) {
    return absl::StrCat("entry ", read->sequence, " does not follow on the one before it");
  }
  if (entries_ == 0) first_sequence_ = read->sequence;
  ++entries_;
  tail_ = {read->sequence, read->hash};
  return "";
}

std::optional<uint64_t> AuditThrottle::Take(MonotonicTime now) {
  if (!minute_.has_value() || now - *minute_ >= std::chrono::minutes(1)) {
    minute_ = now;
    lines_ = 0;
  }
  if (lines_ >= kLinesPerMinute) {
    ++left_out_;
    return std::nullopt;
  }
  ++lines_;
  return std::exchange(left_out_, 0);
}

}  // namespace macrame::agentd
