#include "proto/check.h"

#include <spdlog/spdlog.h>

#include <cstdlib>

namespace macrame {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  text_ << file << ":" << line << ": check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  spdlog::critical("{}", text_.str());
  spdlog::default_logger()->flush();
  std::abort();
}

}  // namespace macrame
