#pragma once

// A wire that says when it is waited on: exchanges pass through it unchanged.

#include <memory>

#include "transport/collectives/wire.h"

namespace macrame::transport {

// Called on the wire's thread, around each exchange.
class WireObserver {
 public:
  virtual ~WireObserver() = default;
  virtual void BeginExchange() = 0;
  virtual void EndExchange() = 0;
};

// `observer` must outlive the wire.
std::unique_ptr<Wire> MakeObservedWire(std::unique_ptr<Wire> wire, WireObserver* observer);

}  // namespace macrame::transport
