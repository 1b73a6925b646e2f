#include "cli/interrupt.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "proto/check.h"

namespace macrame::cli {
namespace {

int pipe_ends[2] = {-1, -1};

// Only what is allowed in a handler: one write.
extern "C" void OnSignal(int signal) {
  const unsigned char byte = static_cast<unsigned char>(signal);
  const ssize_t ignored = write(pipe_ends[1], &byte, 1);
  static_cast<void>(ignored);
}

// What was in force before.
struct sigaction Handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action = {}, before = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, &before);
  return before;
}

}  // namespace

InterruptWatch::InterruptWatch(std::function<void()> on_signal) : on_signal_(std::move(on_signal)) {
  MACRAME_CHECK(pipe_ends[0] < 0) << "two interrupt watches at once";
  MACRAME_CHECK(pipe(pipe_ends) == 0) << "no pipe";
  for (const int end : pipe_ends) fcntl(end, F_SETFD, FD_CLOEXEC);
  fcntl(pipe_ends[1], F_SETFL, O_NONBLOCK);
  thread_ = std::thread([this] {
    unsigned char byte = 0;
    if (read(pipe_ends[0], &byte, 1) != 1 || byte == 0) return;
    signal_ = byte;
    on_signal_();
  });
  before_ = {Handle(SIGINT, OnSignal, static_cast<int>(SA_RESETHAND) | SA_RESTART),
             Handle(SIGTERM, OnSignal, static_cast<int>(SA_RESETHAND) | SA_RESTART)};
}

InterruptWatch::~InterruptWatch() {
  sigaction(SIGINT, &before_[0], nullptr);
  sigaction(SIGTERM, &before_[1], nullptr);
  const unsigned char end = 0;
  const ssize_t ignored = write(pipe_ends[1], &end, 1);
  static_cast<void>(ignored);
  thread_.join();
  for (int& descriptor : pipe_ends) {
    close(descriptor);
    descriptor = -1;
  }
}

ExitCode InterruptWatch::exit_code() const {
  return signal_.load() == SIGTERM ? kExitTerminated : kExitInterrupted;
}

InterruptGap::InterruptGap() : before_(Handle(SIGINT, SIG_IGN, 0)) {}

InterruptGap::~InterruptGap() { sigaction(SIGINT, &before_, nullptr); }

}  // namespace macrame::cli
