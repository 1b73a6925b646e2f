#pragma once

// gRPC's own log lines go to our log, at debug: what they mean for us (a peer refused, a port
// taken) is said by whoever gets the status. Call once, before any gRPC object is made.

namespace macrame::transport {

void RouteGrpcLogs();

}  // namespace macrame::transport
