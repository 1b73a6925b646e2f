#pragma once

// How a rank process ends. Part of the interface between rankd and its supervisor: numbers are
// never used again for something else. A rank that ends with another number than kExitOrderly or
// kExitUsage says why in one last line on stderr, which starts with "rankd: ".

namespace macrame::runtime::engine {

enum ExitCode : int {
  kExitOrderly = 0,         // Stop, SIGTERM, or the parent closed stdin
  kExitUsage = 64,          // the command line or the launch spec can't be used
  kExitModelInvalid = 65,   // files missing, broken or contradicting the config
  kExitSocketFailed = 66,   // the RankService socket could not be opened
  kExitConnectFailed = 70,  // the gang did not form within connect_timeout_ms, or came up smaller
  kExitPeerLost = 71,       // another rank of the gang is gone
  kExitStalled = 72,        // a watchdog limit was passed (step, connecting or loading)
  kExitOutOfMemory = 73,    // an allocation was refused
  kExitInternal = 74,       // an exception that nothing else explains
};

}  // namespace macrame::runtime::engine
