#pragma once

// What gangs took of their nodes' energy, what came of it, and whose requests it was for. Pure;
// owner: the agent's owner thread. Every agent keeps one, from its start on.
//
// Of a gang. Each of its ranks tells what it took of its node's energy (RankStatus.energy_joules,
// energy_meter.h), the entry rank the time of its steps and the tokens. What passed between two
// looks counts once energy and steps have both gone on, and only while all ranks tell: a gang with
// one node of which nothing is known has no figure. Prompts' part of it is by the time of steps
// that had tokens of a prompt in them (answers that run along in these are counted to the prompt).
//
// Of a key. What a gateway answered is priced at what the deployment's tokens cost in that time: a
// token of a prompt that was computed its part of the prompts' energy, a token of an answer its
// part of the rest. So requests that share a batch share its energy. The keys of all gateways come
// to less than what the gangs took: what is asked past the gateways has no key, and at the edges of
// a burst energy is told later than tokens (two simulated Macs, short bursts: 8 to 21 % less).

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "macrame/v1/access.pb.h"
#include "macrame/v1/cluster.pb.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

// How often a shell looks. Energy is read each 10 s, and other nodes' figures come as seldom as
// each 20 s.
inline constexpr Duration kEnergyLookInterval = std::chrono::seconds(10);
// Prices are known for so many looks back: some ten minutes.
inline constexpr size_t kPricePointsMax = 64;
// A price is that of at least half as many tokens as are priced: what ranks tell comes later than
// answers do. After so long it is what it is, or the use is not counted.
inline constexpr Duration kPriceWaitMax = std::chrono::minutes(2);
inline constexpr size_t kPendingUsesMax = 1024;

// What a request used, tokens of prompts without those that were found in the prefix cache.
struct TokensUsed {
  uint64_t prompt = 0;
  uint64_t generated = 0;
};

class EnergyLedger {
 public:
  // By node: what its figure covers; nodes whose power is not known are not in it.
  using PartsOfNodes = std::map<std::string, std::vector<v1::PowerPart>>;

  void Observe(const std::vector<v1::DeploymentStatus>& gangs, const PartsOfNodes& parts,
               MonotonicTime now);
  // Null: not known, or nothing was computed yet.
  const v1::ModelEnergy* Find(const std::string& gang, uint64_t epoch) const;

  // A request of `key` that `deployment` answered from `begun` to `now`.
  void Charge(const std::string& key, const std::string& deployment, TokensUsed used,
              MonotonicTime begun, MonotonicTime now);
  // Keys that took some, by id; since the ledger began.
  std::vector<v1::KeyEnergy> Keys() const;

 private:
  // Sums so far of a gang, or of all gangs that a deployment had.
  struct Totals {
    double joules = 0, prefill_joules = 0, seconds = 0;
    uint64_t prompt_tokens = 0, generated_tokens = 0;
  };
  // What a gang tells at one look.
  struct Reading {
    double joules = 0, prefill_us = 0, decode_us = 0;
    uint64_t prompt_tokens = 0, generated_tokens = 0;
    std::vector<v1::PowerPart> parts;
    bool parts_differ = false;
  };
  struct Gang {
    uint64_t epoch = 0;
    std::optional<Reading> last;
    v1::ModelEnergy total;
  };
  struct Point {
    MonotonicTime at;
    Totals totals;
  };
  struct Use {
    TokensUsed used;
    MonotonicTime begun;
    MonotonicTime waits_from;  // the first request of these was over
    MonotonicTime last_at;     // the last one was
  };
  static std::optional<Reading> Read(const v1::DeploymentStatus& gang, const PartsOfNodes& parts);
  void Advance(const std::string& name, Gang& gang, Reading reading);
  void NotePoints(MonotonicTime now);
  void Settle(MonotonicTime now);
  // nullopt: what the tokens cost can't be said yet; with `is_last`, ever.
  std::optional<double> Price(const std::string& deployment, const Use& use, bool is_last) const;

  std::map<std::string, Gang> gangs_;
  std::map<std::string, Totals> deployments_;
  std::map<std::string, std::deque<Point>> points_;
  std::map<std::pair<std::string, std::string>, Use> pending_;  // by key and deployment
  std::map<std::string, v1::KeyEnergy> keys_;
};

}  // namespace macrame::agentd
