#pragma once

// How agentd ends.

namespace macrame::agentd {

inline constexpr int kExitOk = 0;             // stopped in order (SIGTERM, SIGINT)
inline constexpr int kExitFailed = 1;         // a bug, or stopped by a second signal
inline constexpr int kExitMisconfigured = 2;  // could not start: one line says why

inline constexpr char kExitCodesText[] =
    "Exit codes: 0 stopped in order; 1 failed while running; 2 could not start (a wrong setting, "
    "an\n"
    "unusable secret file, a state folder that is unreadable or in use, a socket or port that is "
    "taken).\n"
    "Log: standard error and log_file (default STATE_FOLDER/agentd.log).";

}  // namespace macrame::agentd
