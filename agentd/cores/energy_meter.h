#pragma once

// Shares this node's energy out between its ranks: what each took so far while its steps ran. Pure;
// owner: the agent's owner thread.
//
// A step's time is what a rank itself measured (RankTimings.prefill_step_us and decode_step_us,
// waiting for other ranks included). Between two readings of the node's energy E, apart by T
// seconds, of which ranks computed B = Σ b seconds (at most T: ranks compute at the same time,
// too):
//
//   resting power P0   learnt from readings in which no rank computed: falls at once, rises slowly
//   ranks' energy      (E - P0·T) + P0·min(B, T); without a P0 yet E·min(B, T)/T
//   each rank's share  b/B of it
//
// So a rank has what the node took above rest, and the node's rest while it computed; a node that
// rests counts to nobody. What other programs take while a rank computes is counted to it: no
// machine tells them apart.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "macrame/v1/node.pb.h"
#include "macrame/v1/rank.pb.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

// A reading is seen up to so much later than it was made (the load is sampled each two seconds on a
// node at rest). Its own time is its energy over its power, which is the mean since the last.
inline constexpr Duration kReadingSeenLate = std::chrono::seconds(4);
// Of the way to a higher resting power, what one reading at rest goes.
inline constexpr double kRestingRise = 0.1;

class EnergyMeter {
 public:
  // What the node and its ranks tell now. Nothing happens until the node's energy is a new reading.
  void Observe(const v1::NodeLoad& load, const std::vector<v1::RankStatus>& ranks,
               MonotonicTime now);
  // Of this rank, since its node's energy is known as that of the present parts; nullopt: the
  // node's energy is not known now. Steps since the last reading are taken to cost what the last
  // ones did, so that energy and tokens go on together; it never goes back.
  std::optional<double> JoulesOf(const v1::RankStatus& rank) const;

 private:
  using RankKey = std::tuple<std::string, uint64_t, uint32_t>;  // deployment, epoch, rank
  struct Share {
    double busy_seconds = 0;       // of its steps, as it last told
    double joules = 0;             // as readings have it
    double joules_per_second = 0;  // of its steps, by the last reading
    mutable double told = 0;
  };
  static RankKey KeyOf(const v1::RankStatus& rank);
  std::map<RankKey, double> TakeBusy(const std::vector<v1::RankStatus>& ranks, double seconds_max);
  void ShareOut(double joules, double seconds, const std::map<RankKey, double>& busy);
  void NoteRest(double joules, double seconds);

  std::map<RankKey, Share> shares_;
  std::optional<double> last_joules_;  // of the node; nullopt: not known
  MonotonicTime last_at_;
  std::vector<v1::PowerPart> parts_;
  std::optional<double> resting_watts_;
  // Above rest, of a reading in which no rank had told of steps: they are told up to two seconds
  // late. The next one's ranks have it, or nobody.
  double held_joules_ = 0;
};

}  // namespace macrame::agentd
