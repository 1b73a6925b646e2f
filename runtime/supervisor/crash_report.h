#pragma once

// What macOS writes about a process that crashed, read: the exception and the stack of the thread
// that crashed. Pure: any bytes in, nothing is thrown, and what comes out is bounded.
//
// Two forms are read. Since macOS 12 a report is an .ips file: a line of JSON about the file, then
// a JSON document. Older ones, and what Console shows, are text: "Process:", "Exception Type:",
// "Thread 0 Crashed:".

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace macrame::runtime {

inline constexpr size_t kCrashReportBytesMax = size_t{2} << 20;  // of a file; larger ones are left
inline constexpr size_t kCrashFramesMax = 24;
inline constexpr size_t kCrashTextBytesMax = 2048;

struct CrashReport {
  uint64_t pid = 0;       // 0: the report does not say
  std::string program;    // empty: likewise
  std::string exception;  // "EXC_BAD_ACCESS (SIGSEGV), KERN_INVALID_ADDRESS at 0x10"
  std::string note;       // what a library said as it gave up: "abort() called"; often empty
  // The thread that crashed, the innermost call first: "0 libmlx.dylib tbt_post_recv".
  std::vector<std::string> frames;

  // Exception, note and frames, a line each. UTF-8 without control characters.
  std::string Text() const;
  // The innermost calls for a sentence, "3 libmlx.dylib f, 4 libmlx.dylib g": without those of the
  // system by which a program aborts, where others are known.
  std::string TopFrames() const;
};

// None of what is no report of a crash, too large or cut short in its JSON.
std::optional<CrashReport> ParseCrashReport(std::string_view text);

}  // namespace macrame::runtime
