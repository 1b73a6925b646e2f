#pragma once

// The answers of /v1/responses that clients may come back to, in this agent's memory. They are
// bounded by number and bytes. Where room is needed, the least recently used one leaves of the
// holder, and of its tenants of the one, that has most of what is short: nobody drives out the
// answers of another holder that has less. Each is its tenant's alone. How long they are kept:
// StoredAnswers. Pure; one thread.
//
// Where no keys are asked for, a holder is an address, and its tenants are whatever texts clients
// there send as keys: clients of one address (this machine, a proxy, a NAT) are not safe from each
// other, whoever leaves first.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

namespace macrame::agentd {

inline constexpr size_t kStoredResponsesMax = 1024;
inline constexpr size_t kStoredResponsesBytesMax = size_t{64} << 20;

class ResponseStore {
 public:
  // Readers share a text with the store. It lives on with them when its turn leaves.
  using Text = std::shared_ptr<const std::string>;
  struct Turn {
    std::string tenant;          // whose it is; others don't find it
    Text body;                   // as it was answered; never null
    Text messages;               // the chat up to and with this answer, a JSON list; never null
    uint64_t since_unix_ms = 0;  // when the oldest answer in it was stored
    std::string holder{};        // whose room it takes (Asker.holder)
    size_t bytes() const { return tenant.size() + holder.size() + body->size() + messages->size(); }
  };

  ResponseStore(size_t turns_max, size_t bytes_max)
      : turns_max_(turns_max), bytes_max_(bytes_max) {}
  // One that is larger than all may be is not kept, nor one that is all that its holder has and
  // more than any other holder has, where it does not fit beside them.
  void Put(const std::string& id, Turn turn);
  // Null when there is none of this id and tenant. Valid until the next call.
  const Turn* Find(const std::string& id, const std::string& tenant);
  bool Erase(const std::string& id, const std::string& tenant);
  struct Dropped {
    size_t turns = 0;
    size_t bytes = 0;
  };
  // Every one of which `goes` is true.
  Dropped DropIf(const std::function<bool(const Turn&)>& goes);
  size_t turns() const { return turns_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Held {
    size_t turns = 0;
    size_t bytes = 0;
    void Add(const Turn& turn);
    void Take(const Turn& turn);
  };
  struct Holder {
    Held all;
    std::map<std::string, Held> by_tenant;
  };
  struct Kept {
    std::string id;
    Turn turn;
    Holder* holder;  // in holders_, as the next one
    Held* tenant;
  };
  void Drop(std::list<Kept>::iterator at);
  // The one that leaves where there are too many turns, else bytes. There is one.
  std::list<Kept>::iterator NextToLeave();

  const size_t turns_max_;
  const size_t bytes_max_;
  std::list<Kept> turns_;  // the most recently used first
  std::unordered_map<std::string, std::list<Kept>::iterator> by_id_;
  std::unordered_map<std::string, Holder> holders_;
  size_t bytes_ = 0;
};

}  // namespace macrame::agentd
