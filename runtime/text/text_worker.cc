#include "runtime/text/text_worker.h"

#include "proto/reason_codes.h"
#include "runtime/text/abi_bridge.h"

namespace macrame::runtime::text {

absl::Status UseTextWorkers(const std::string& program) {
  MacrameTextBytes error{};
  const auto status = macrame_text_use_workers(Lend(program), &error);
  return TakeStatus(status, error,
                    {reasons::kBadRequest, reasons::kBadRequest, reasons::kBadRequest});
}

void RunTextWorker() { macrame_text_worker_serve(); }

bool IsTame(std::string_view text) { return macrame_text_is_tame(Lend(text)); }

}  // namespace macrame::runtime::text
