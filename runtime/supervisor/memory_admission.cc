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

}  // namespace macrame::runtime
