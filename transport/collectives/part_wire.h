#pragma once

// Some of a wire's ranks as a wire of their own: the ranks of one stage sum among themselves over
// the connections that the whole gang has. Parts of one wire share its thread and its deadlines,
// and when one of them breaks, all do.

#include <memory>
#include <vector>

#include "transport/collectives/wire.h"

namespace macrame::transport {

// Ranks [first, first + size) of `whole`, numbered from 0. This process's rank must be among them.
// The whole of it is a part too.
std::unique_ptr<Wire> MakePartWire(std::shared_ptr<Wire> whole, int first, int size);

}  // namespace macrame::transport
