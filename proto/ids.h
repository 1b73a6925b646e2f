#pragma once

// Types for identity: what is a node, a rank, a term or an epoch is never a bare string or integer.
// All are ordered, hashable (absl) and printable; comparing two different ones does not compile.

#include <compare>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace macrame {

// A string or number that means one thing, named by Tag.
template <typename Value, typename Tag>
class Named {
 public:
  Named() = default;
  explicit Named(Value value) : value_(std::move(value)) {}

  const Value& value() const { return value_; }
  auto operator<=>(const Named&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const Named& named) {
    return H::combine(std::move(h), named.value_);
  }
  friend std::ostream& operator<<(std::ostream& out, const Named& named) {
    return out << named.value_;
  }

 private:
  Value value_{};
};

// 32 lower-case hex digits; made once per state folder, survives restarts.
using NodeId = Named<std::string, struct NodeIdTag>;
// Raised by a node at each start, so that old news of it can be told from new.
using Incarnation = Named<uint64_t, struct IncarnationTag>;
using Rank = Named<uint32_t, struct RankTag>;
// Raised at every election.
using Term = Named<uint64_t, struct TermTag>;

// Orders coordinators: the higher pair leads (architecture: two halves that elect apart never tie).
struct FencePair {
  Term term;
  NodeId coordinator;
  auto operator<=>(const FencePair&) const = default;
};

// True for 32 lower-case hex digits.
bool IsValidNodeId(std::string_view text);
// The first 8 digits: enough for people, never for comparing.
std::string ShortId(const NodeId& id);
// True when a person who types `name` may mean the node of that id: 4 of its first digits at least.
bool IsBeginningOfId(std::string_view name, std::string_view id);

}  // namespace macrame
