#pragma once

// Coroutines that read a text which comes in pieces.
//
// A reader is written as if the whole text were there; where it needs more than has come, it waits
// (`co_await source.More()`) and is gone on with when the next piece is there. So what a reader
// does hangs on the text alone and never on where it was cut. A Reading<T> is one such coroutine;
// it runs when it is awaited, or as the outermost one of a ReadingStack.
//
// The stack is ours and not the compiler's: without optimisation GCC makes no tail calls, and a
// loop of awaits would grow the machine's stack.

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

namespace macrame::runtime::markup {

// The readers that wait for one another, the innermost last. One answer's, one thread's.
class ReadingStack {
 public:
  // Runs until the innermost reader waits for text, or all are done.
  void Run() {
    is_starving_ = false;
    while (!readers_.empty() && !is_starving_) {
      const std::coroutine_handle<> innermost = readers_.back();
      innermost.resume();
      if (innermost.done()) readers_.pop_back();
    }
  }
  void Push(std::coroutine_handle<> reader) { readers_.push_back(reader); }
  void Starve() { is_starving_ = true; }
  bool done() const { return readers_.empty(); }

 private:
  std::vector<std::coroutine_handle<>> readers_;
  bool is_starving_ = false;
};

template <typename T>
class [[nodiscard]] Reading {
 public:
  struct promise_type {
    ReadingStack* stack = nullptr;
    std::optional<T> result;

    Reading get_return_object() {
      return Reading(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_value(T value) { result = std::move(value); }
    void unhandled_exception() { std::terminate(); }
  };

  Reading(Reading&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  Reading& operator=(Reading&&) = delete;
  ~Reading() {
    if (handle_) handle_.destroy();
  }

  // As the outermost reader.
  void StartOn(ReadingStack& stack) {
    handle_.promise().stack = &stack;
    stack.Push(handle_);
  }

  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> outer) {
    StartOn(*outer.promise().stack);
  }
  T await_resume() { return std::move(*handle_.promise().result); }

 private:
  explicit Reading(std::coroutine_handle<promise_type> handle) : handle_(handle) {}

  std::coroutine_handle<promise_type> handle_;
};

}  // namespace macrame::runtime::markup
