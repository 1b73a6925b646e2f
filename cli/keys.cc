#include "cli/keys.h"

#include <poll.h>
#include <termios.h>
#include <unistd.h>

namespace macrame::cli {
namespace {

constexpr int kLookMs = 50;

}  // namespace

struct KeyWatch::Terminal {
  termios settings;
};

KeyWatch::KeyWatch(bool is_wanted, std::function<void(char)> on_key) {
  Terminal before{};
  if (!is_wanted || tcgetattr(STDIN_FILENO, &before.settings) != 0) return;
  termios raw = before.settings;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0) return;
  before_ = std::make_unique<Terminal>(before);
  thread_ = std::thread([this, on_key = std::move(on_key)] {
    while (!is_over_) {
      pollfd input{STDIN_FILENO, POLLIN, 0};
      if (poll(&input, 1, kLookMs) <= 0) continue;
      char key = 0;
      if (read(STDIN_FILENO, &key, 1) != 1) return;
      on_key(key);
    }
  });
}

KeyWatch::~KeyWatch() {
  is_over_ = true;
  if (thread_.joinable()) thread_.join();
  if (before_ != nullptr) tcsetattr(STDIN_FILENO, TCSANOW, &before_->settings);
}

}  // namespace macrame::cli
