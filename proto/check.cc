#include "proto/check.h"

#include <spdlog/spdlog.h>

#include <cstdio>
#include <cstdlib>

namespace macrame {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  text_ << file << ":" << line << ": check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  // On stderr too: whoever started the process keeps its last lines from there.
  std::fprintf(stderr, "%s\n", text_.str().c_str());
  spdlog::critical("{}", text_.str());
  spdlog::default_logger()->flush();
  std::abort();
}

}  // namespace macrame
