#include "runtime/model/split_proof.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "proto/reasons.h"
#include "runtime/model/layer_proof.h"

namespace macrame::runtime::engine {
namespace {

constexpr int kOneStep[] = {kProofRows};

absl::Status Judge(const SplitProof& proof, int layer, const std::vector<double>& differences) {
  const Agreement found = AgreementOf(differences, kSplitProofTolerance);
  if (found.rows >= kProofAgreeMin * kProofRows) return absl::OkStatus();
  return ReasonStatus(
      absl::StatusCode::kFailedPrecondition, reasons::kSplitDiffers,
      absl::StrFormat("the %d slices of layer %d of %s are not the layer that they were cut from: "
                      "of %d rows %d agree, the others differ by up to %.0f %%",
                      proof.place.tp, layer, proof.config.architecture, kProofRows, found.rows,
                      100 * found.largest));
}

}  // namespace

absl::Status ProveSplit(const SplitProof& proof, RankSums& sums) {
  if (proof.place.tp < 2) return absl::OkStatus();
  const ModelConfig few = WithFewExperts(proof.config);
  absl::Status proven = absl::OkStatus();
  // To the end, whatever is found: the other ranks go on adding.
  for (const int layer : LayersToProve(proof.config, proof.place)) {
    const ShardPlace alone = OneLayer(ShardPlace(), layer);
    // By all of its weights: of experts that are dealt out whole a rank may hold none. Ranks agree
    // on it: one of a gang may have a GPU, and another none.
    const bool is_copied =
        IsTurnedOver({proof.config, alone, proof.files, proof.device, proof.threads});
    const ModelConfig& config = is_copied ? few : proof.config;
    const ProofRun own{config, OneLayer(proof.place, layer), proof.files, proof.device,
                       proof.threads};
    const std::vector<float> states = MadeUpStates(own);
    const auto split = RunLayer(own, sums, states, kOneStep);
    if (!split.ok()) return split.status();
    if (proof.place.tp_rank != 0 || !proven.ok()) continue;
    const ProofRun whole_run{config, alone, proof.files, proof.device, proof.threads};
    const bool takes_memory = is_copied || UsesMlxGraph(proof.device);
    if (takes_memory && BytesOf(whole_run) > proof.layer_bytes_max) continue;
    NoRankSums nobody;
    const auto whole = RunLayer(whole_run, nobody, states, kOneStep);
    if (!whole.ok()) return whole.status();
    proven = Judge(proof, layer, RowDifferences(*split, *whole, states, 0));
  }
  return proven;
}

}  // namespace macrame::runtime::engine
