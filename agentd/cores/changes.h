#pragma once

// What of an agent changed, and who looks again because of it. A part notes what changed and knows
// nobody who cares; a reader says once what it looks at, and looks when it gets to it: many notes
// make one look.
//
// Owner thread.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

namespace macrame::agentd {

enum class Change : uint32_t {
  kCoordinator,  // who leads, or who is obeyed
  kDeployment,   // what a deployment is doing
  kDeparture,    // this node is told to stop
  kIdentity,     // whether this machine is the node that its disk says
  kInventory,    // what this node is made of
  kLinks,        // what leads where
  kMembers,      // who is a member, and alive
  kRanks,        // what runs on this node
  kReport,       // what a member said of itself
  kState,        // the desired state
};

class Changes {
 public:
  using Look = std::function<void()>;

  // `look` at each note of one of `of`, from within it: it is to be cheap, and to put off the work.
  void Read(std::initializer_list<Change> of, Look look) {
    uint32_t bits = 0;
    for (const Change change : of) bits |= BitOf(change);
    readers_.emplace_back(bits, std::move(look));
  }
  void ReadAll(Look look) { readers_.emplace_back(~uint32_t{0}, std::move(look)); }

  void Note(Change change) {
    for (const auto& [bits, look] : readers_) {
      if ((bits & BitOf(change)) != 0) look();
    }
  }

 private:
  static constexpr uint32_t BitOf(Change change) { return 1U << static_cast<uint32_t>(change); }

  std::vector<std::pair<uint32_t, Look>> readers_;
};

}  // namespace macrame::agentd
