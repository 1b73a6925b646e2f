#pragma once

// Keys as they are pressed, without waiting for the end of a line.

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

namespace macrame::cli {

// While it lives and `is_wanted`, each key that is pressed at the terminal on standard input runs
// `on_key` on a thread of its own; the terminal is as before afterwards. Elsewhere nothing happens.
class KeyWatch {
 public:
  KeyWatch(bool is_wanted, std::function<void(char)> on_key);
  ~KeyWatch();
  KeyWatch(const KeyWatch&) = delete;
  KeyWatch& operator=(const KeyWatch&) = delete;

 private:
  struct Terminal;
  std::unique_ptr<Terminal> before_;  // null: nothing was changed
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

}  // namespace macrame::cli
