#pragma once

// absl::Status inside the product, grpc::Status on the wire. A Reason (proto/reasons.h) that the
// status carries travels as the serialised message in grpc::Status::error_details(). Any thread.

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace macrame::transport {

// The Reason's texts, and the message as it is encoded, are cut to so much each, so that the
// trailer stays under gRPC's 8 KiB of metadata.
inline constexpr size_t kReasonTextBytesMax = 1500;

grpc::Status ToGrpcStatus(const absl::Status& status);
// Details that do not parse are dropped; the code and message stay.
absl::Status FromGrpcStatus(const grpc::Status& status);

// True when the other side refused the connection: nobody listens there (any more).
bool IsConnectionRefused(const absl::Status& status);

// True when somebody answered and the connection failed all the same, as it does when one side does
// not take the other's certificate. A process that ends in the middle of a call looks like it,
// once.
bool IsHandshakeFailure(const absl::Status& status);

}  // namespace macrame::transport
