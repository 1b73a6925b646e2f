#pragma once

// MACRAME_CHECK: for bugs only. On in every build; prints the condition, place and what was
// streamed, then aborts. An environment that misbehaves is an absl::Status, a wrong start-up
// setting an exit code.
//
//   MACRAME_CHECK(begin <= end) << "layer range of rank " << rank;

#include <sstream>

namespace macrame {

class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;

  template <typename T>
  CheckFailure& operator<<(const T& value) {
    text_ << value;
    return *this;
  }

 private:
  std::ostringstream text_;
};

}  // namespace macrame

#define MACRAME_CHECK(condition) \
  if (condition) {               \
  } else                         \
    ::macrame::CheckFailure(__FILE__, __LINE__, #condition)
