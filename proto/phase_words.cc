#include "proto/phase_words.h"

namespace macrame {

std::string PhaseWord(v1::RankPhase phase) {
  switch (phase) {
    case v1::RANK_PHASE_STAGING:
      return "staging";
    case v1::RANK_PHASE_CONNECTING:
      return "connecting";
    case v1::RANK_PHASE_LOADING:
      return "loading";
    case v1::RANK_PHASE_WARMING_UP:
      return "warming up";
    case v1::RANK_PHASE_READY:
      return "ready";
    case v1::RANK_PHASE_STOPPING:
      return "stopping";
    case v1::RANK_PHASE_FAILED:
      return "failed";
    case v1::RANK_PHASE_STOPPED:
      return "stopped";
    default:
      return "starting";
  }
}

}  // namespace macrame
