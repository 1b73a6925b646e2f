#pragma once

// The audit log's lines: who did what, to what, when, from where, with what outcome. Pure.
//
// A line is a JSON object. Its last member, "hash", is the SHA-256 of the text before it, and
// "prev" is the hash of the line before. So a line that was changed, put in, or left out breaks the
// chain at a place that can be named. Whoever can write the file can also write all of it anew, and
// cut off its end; the last hash, kept elsewhere, shows that. No line ever holds a prompt, an
// answer or a key.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

inline constexpr size_t kAuditTextBytesMax = 256;  // of each text; longer ones are cut

struct AuditEntry {
  uint64_t unix_ms = 0;
  std::string who;        // "local", "node 1f2e…", "key 0a1b…", "nobody"
  std::string what;       // "LoadModel", "GET /v1/models"
  std::string target;     // the model, key or node; may be empty
  std::string from;       // "socket", an address
  std::string outcome;    // "ok", or a code
  uint64_t left_out = 0;  // like it, before it, that no line tells of
};

// What the next line follows on.
struct AuditTail {
  uint64_t sequence = 0;  // 0: there is no line yet
  std::string hash;       // of 64 hex digits; empty: none
};

// The line that follows `tail`, with its line break; `tail` becomes its own.
std::string ComposeAuditLine(const AuditEntry& entry, AuditTail* tail);

struct AuditLine {
  uint64_t sequence = 0;
  uint64_t unix_ms = 0;
  std::string prev;
  std::string hash;
};
// Without its line break. Nullopt: it is none, or its hash is not that of its text.
std::optional<AuditLine> ReadAuditLine(absl::string_view line);

// Holds line after line against the chain. Begins anywhere: what came before was rotated away.
class AuditVerifier {
 public:
  // Empty, or why the chain is broken here. After that nothing more is looked at.
  std::string Take(absl::string_view line);

  uint64_t entries() const { return entries_; }
  uint64_t first_sequence() const { return first_sequence_; }
  const AuditTail& tail() const { return tail_; }

 private:
  uint64_t entries_ = 0;
  uint64_t first_sequence_ = 0;
  AuditTail tail_;
};

// How many refused requests get a line: a flood of them must not push everything else out.
class AuditThrottle {
 public:
  static constexpr uint32_t kLinesPerMinute = 30;
  // Nullopt: this one gets none. Else how many before it got none.
  std::optional<uint64_t> Take(MonotonicTime now);

 private:
  std::optional<MonotonicTime> minute_;
  uint32_t lines_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace macrame::agentd
