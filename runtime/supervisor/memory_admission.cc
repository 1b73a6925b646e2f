#include "runtime/supervisor/memory_admission.h"

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::runtime {

absl::Status AdmitMemory(Bytes need, const std::vector<AdmittedRank>& admitted,
                         const NodeMemory& memory, const std::string& node_id) {
  Bytes promised;
  Bytes still_to_come;
  for (const AdmittedRank& rank : admitted) {
    promised += rank.need;
    still_to_come += rank.need - rank.resident;
  }
  const Bytes left = memory.usable - promised;
  if (need > left) {
    return ReasonStatus(
        absl::StatusCode::kResourceExhausted, reasons::kMemoryShort,
        absl::StrCat("the rank needs ", FormatBytes(need), "; of ", FormatBytes(memory.usable),
                     " that models may take, ", FormatBytes(promised), " are promised"),
        node_id);
  }
  const Bytes free = memory.available - still_to_come;
  if (memory.available > Bytes(0) && need > free) {
    return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kMemoryShort,
                        absl::StrCat("the rank needs ", FormatBytes(need), "; ",
                                     FormatBytes(memory.available), " are free, of which ",
                                     FormatBytes(still_to_come), " go to ranks that are loading"),
                        node_id);
  }
  return absl::OkStatus();
}

absl::Status AdmitWired(const NewRank& rank, const std::vector<AdmittedRank>& admitted,
                        const NodeMemory& memory) {
  if (memory.working_set == Bytes(0)) return absl::OkStatus();
  Bytes left = memory.working_set;
  for (const AdmittedRank& other : admitted) left = left - other.wired;
  if (rank.wired <= left) return absl::OkStatus();
  const std::string& node = rank.hostname.empty() ? rank.node_id : rank.hostname;
  v1::Reason reason = MakeReason(
      reasons::kMemoryShort,
      absl::StrCat("a rank of ", rank.model, " keeps ", FormatBytes(rank.wired),
                   " resident for the GPU of ", node, "; of the ", FormatBytes(memory.working_set),
                   " that this GPU can keep, ", FormatBytes(left), " are left by the other ranks"),
      rank.node_id);
  reason.set_remedy(absl::StrCat("unload a model that runs on ", node,
                                 ", load a smaller copy or a shorter context, or let the GPU keep "
                                 "more with 'sudo sysctl iogpu.wired_limit_mb=MIB' there, which "
                                 "is lost when it restarts (docs/macs.md keeps it)"));
  return ReasonStatus(absl::StatusCode::kResourceExhausted, reason);
}

}  // namespace macrame::runtime
