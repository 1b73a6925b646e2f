#include "runtime/text/python_json.h"

#include "proto/reason_codes.h"
#include "runtime/text/abi_bridge.h"

namespace macrame::runtime::text {

absl::StatusOr<std::string> ReadPythonJson(std::string_view json) {
  constexpr FailureReasons kReasons = {reasons::kModelFileMissing, reasons::kModelFileBroken,
                                       reasons::kBadRequest};
  MacrameTextBytes out{};
  MacrameTextBytes error{};
  const auto status = macrame_text_read_python_json(Lend(json), &out, &error);
  if (status != 0) return TakeStatus(status, error, kReasons);
  return TakeString(out);
}

}  // namespace macrame::runtime::text
