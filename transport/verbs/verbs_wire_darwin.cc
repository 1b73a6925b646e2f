#include "proto/reasons.h"
#include "transport/verbs/verbs_wire.h"

namespace macrame::transport {

absl::StatusOr<std::unique_ptr<Wire>> ConnectVerbsWire(const VerbsWireOptions&,
                                                       std::unique_ptr<Wire>) {
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kTransportUnavailable,
                      "a Mac's RDMA devices are driven by jaccl, not by verbs of ours");
}

}  // namespace macrame::transport
