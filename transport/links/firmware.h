#pragma once

// Macs whose system firmware lags behind. On Apple silicon it holds the firmware of the Thunderbolt
// ports, and an update of macOS brings it along: two Macs of one model and one build of macOS have
// the same, unless an update failed on one. Pure.

#include <span>
#include <vector>

#include "macrame/v1/link.pb.h"

namespace macrame::transport {

// A FIRMWARE_OLD for each Mac whose firmware is older than that of another one of its model and
// build; compared number by number. Nothing is said of a Mac whose firmware, model or build is not
// known, nor of virtual machines: theirs is their host's.
std::vector<v1::Reason> OldFirmware(std::span<const v1::LinkFacts* const> nodes);

}  // namespace macrame::transport
