#pragma once

// The text of one answer as readers take it: what has come and is not taken yet, and what was taken
// since a mark, for a reader that finds out that it was wrong.

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/serving/markup/reading.h"

namespace macrame::runtime::markup {

class TextSource {
 public:
  using Take = std::function<void(std::string_view)>;
  static constexpr size_t kNone = static_cast<size_t>(-1);

  void Append(std::string_view text) { text_.append(text); }
  // No more will come.
  void End() { has_ended_ = true; }
  bool has_ended() const { return has_ended_; }

  std::string_view rest() const { return std::string_view(text_).substr(taken_); }
  void Skip(size_t bytes);

  // From here on what is taken is kept; one mark at a time.
  void Mark();
  // Everything since the mark stands before the reader again.
  void Rewind();
  void Forget();
  bool is_marked() const { return mark_.has_value(); }

  // Waits for more text; false when none will come.
  struct Wait {
    TextSource& source;
    bool await_ready() const noexcept { return source.has_ended_; }
    template <typename Promise>
    void await_suspend(std::coroutine_handle<Promise> reader) {
      reader.promise().stack->Starve();
    }
    bool await_resume() const noexcept { return !source.has_ended_; }
  };
  Wait More() { return Wait{*this}; }

  // The next character; none at the end.
  Reading<std::optional<char>> Peek();
  // Takes `literal` when it stands next.
  Reading<bool> Accept(std::string_view literal);
  // Takes white space; how many bytes.
  Reading<size_t> SkipSpace();
  // Hands on text up to the first of `ends`, takes that too and says which it was; kNone when the
  // text ended first. No end may be the beginning of another.
  Reading<size_t> CopyUntil(std::span<const std::string_view> ends, Take take);
  // As CopyUntil, but the end stays where it is.
  Reading<size_t> CopyTo(std::span<const std::string_view> ends, Take take);
  // Takes the text before the first of `ends`, which stays; none, and nothing is taken, when it
  // would have more than `bytes_max` bytes or the text ends first.
  Reading<std::optional<std::string>> TextTo(std::span<const std::string_view> ends,
                                             size_t bytes_max);

  // Whether, behind the next `bytes` bytes and white space, one of `wanted` stands, or the text
  // ends before another can be told from it. Takes nothing.
  Reading<bool> IsFollowedBy(size_t bytes, std::span<const std::string_view> wanted);

 private:
  Reading<size_t> Copy(std::span<const std::string_view> ends, Take take, bool takes_end);

  std::string text_;
  size_t taken_ = 0;
  std::optional<size_t> mark_;
  bool has_ended_ = false;
};

bool IsSpace(char c);

// How many of the last bytes of `text` may be the beginning of one of `ends`.
size_t HeldBack(std::string_view text, std::span<const std::string_view> ends);

}  // namespace macrame::runtime::markup
