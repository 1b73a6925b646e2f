#include "runtime/model/device_proof.h"

#include <span>
#include <vector>

#include "absl/strings/str_format.h"
#include "proto/reasons.h"
#include "runtime/model/layer_proof.h"
#include "runtime/model/step/rank_sums.h"

namespace macrame::runtime::engine {
namespace {

constexpr int kPromptRows = kProofRows / 2;
constexpr int kParts[] = {kPromptRows, 1, 1, 1, 1, 1, 1, 1, 1};

absl::Status Judge(const DeviceProof& proof, int layer, std::span<const double> differences,
                   const char* kind, ProvenDevice& proven) {
  const Agreement found = AgreementOf(differences, kDeviceProofTolerance);
  const auto rows = static_cast<double>(differences.size());
  proven.rows += static_cast<int>(differences.size());
  proven.agreeing += found.rows;
  if (found.rows >= kProofAgreeMin * rows) return absl::OkStatus();
  return ReasonStatus(
      absl::StatusCode::kFailedPrecondition, reasons::kDeviceDiffers,
      absl::StrFormat(
          "layer %d of %s comes out otherwise on this node's %s than on its processors: "
          "of %.0f rows of %s %d agree, the others differ by up to %.0f %%",
          layer, proof.config.architecture, proof.device == EngineDevice::kGpu ? "GPU" : "MLX",
          rows, kind, found.rows, 100 * found.largest));
}

}  // namespace

absl::StatusOr<ProvenDevice> ProveDevice(const DeviceProof& proof) {
  ProvenDevice proven;
  const ModelConfig few = WithFewExperts(proof.config);
  for (const int layer : LayersToProve(proof.config, proof.place)) {
    // Whole, whatever the rank's part of it is.
    ProofRun run{few,           OneLayer(ShardPlace(), layer),
                 proof.files,   proof.device,
                 proof.threads, proof.kv_bits};
    if (BytesOf(run) > proof.layer_bytes_max) {
      ++proven.left_out;
      continue;
    }
    const std::vector<float> states = MadeUpStates(run);
    NoRankSums nobody;
    const auto ours = RunLayer(run, nobody, states, kParts);
    if (!ours.ok()) return ours.status();
    run.device = EngineDevice::kCpu;
    const auto reference = RunLayer(run, nobody, states, kParts);
    if (!reference.ok()) return reference.status();
    const std::vector<double> differences =
        RowDifferences(*ours, *reference, states, kDeviceProofFloor);
    const std::span<const double> rows = differences;
    absl::Status good = Judge(proof, layer, rows.first(kPromptRows), "a prompt", proven);
    if (good.ok()) good = Judge(proof, layer, rows.subspan(kPromptRows), "an answer", proven);
    if (!good.ok()) return good;
    ++proven.layers;
  }
  return proven;
}

}  // namespace macrame::runtime::engine
