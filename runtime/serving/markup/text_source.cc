#include "runtime/serving/markup/text_source.h"

#include <algorithm>

namespace macrame::runtime::markup {
namespace {

struct Found {
  size_t at = TextSource::kNone, which = TextSource::kNone;
};

// The first of the ends that stands in the text.
Found FirstOf(std::string_view text, std::span<const std::string_view> ends) {
  Found first;
  for (size_t i = 0; i < ends.size(); ++i) {
    const size_t found = text.find(ends[i]);
    if (found < first.at) first = {found, i};
  }
  return first;
}

// What was taken is dropped once it is so long.
constexpr size_t kTakenBytesMax = 4096;

}  // namespace

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

size_t HeldBack(std::string_view text, std::span<const std::string_view> ends) {
  size_t held = 0;
  for (const std::string_view end : ends) {
    for (size_t length = std::min(end.size() - 1, text.size()); length > held; --length) {
      if (text.substr(text.size() - length) == end.substr(0, length)) held = length;
    }
  }
  return held;
}

void TextSource::Skip(size_t bytes) {
  taken_ += std::min(bytes, text_.size() - taken_);
  if (!mark_.has_value() && taken_ >= kTakenBytesMax) {
    text_.erase(0, taken_);
    taken_ = 0;
  }
}

void TextSource::Mark() { mark_ = taken_; }

void TextSource::Rewind() {
  if (mark_.has_value()) taken_ = *mark_;
  mark_.reset();
}

void TextSource::Forget() { mark_.reset(); }

Reading<std::optional<char>> TextSource::Peek() {
  while (rest().empty()) {
    const bool more = co_await More();
    if (!more && rest().empty()) co_return std::optional<char>();
  }
  co_return std::optional<char>(rest()[0]);
}

Reading<bool> TextSource::Accept(std::string_view literal) {
  for (;;) {
    const size_t common = std::min(rest().size(), literal.size());
    if (rest().substr(0, common) != literal.substr(0, common)) co_return false;
    if (common == literal.size()) break;
    if (has_ended_) co_return false;
    co_await More();
  }
  Skip(literal.size());
  co_return true;
}

Reading<size_t> TextSource::SkipSpace() {
  size_t skipped = 0;
  for (;;) {
    const std::string_view text = rest();
    size_t count = 0;
    while (count < text.size() && IsSpace(text[count])) ++count;
    const bool is_over = count < text.size();
    Skip(count);
    skipped += count;
    if (is_over || has_ended_) co_return skipped;
    co_await More();
  }
}

Reading<size_t> TextSource::Copy(std::span<const std::string_view> ends, Take take,
                                 bool takes_end) {
  for (;;) {
    const std::string_view text = rest();
    const auto [at, which] = FirstOf(text, ends);
    if (which != kNone) {
      if (at > 0) take(text.substr(0, at));
      Skip(at + (takes_end ? ends[which].size() : 0));
      co_return which;
    }
    const size_t held = has_ended_ ? 0 : HeldBack(text, ends);
    const size_t certain = text.size() - held;
    if (certain > 0) {
      take(text.substr(0, certain));
      Skip(certain);
    }
    if (has_ended_) co_return kNone;
    co_await More();
  }
}

Reading<size_t> TextSource::CopyUntil(std::span<const std::string_view> ends, Take take) {
  return Copy(ends, std::move(take), /*takes_end=*/true);
}

Reading<size_t> TextSource::CopyTo(std::span<const std::string_view> ends, Take take) {
  return Copy(ends, std::move(take), /*takes_end=*/false);
}

Reading<std::optional<std::string>> TextSource::TextTo(std::span<const std::string_view> ends,
                                                       size_t bytes_max) {
  for (;;) {
    const std::string_view text = rest();
    const auto [at, which] = FirstOf(text, ends);
    if (which != kNone && at <= bytes_max) {
      std::string before(text.substr(0, at));
      Skip(at);
      co_return std::optional<std::string>(std::move(before));
    }
    const size_t certain = text.size() - (has_ended_ ? 0 : HeldBack(text, ends));
    if (which != kNone || certain > bytes_max || has_ended_) co_return std::optional<std::string>();
    co_await More();
  }
}

Reading<bool> TextSource::IsFollowedBy(size_t bytes, std::span<const std::string_view> wanted) {
  for (;;) {
    std::string_view text = rest().substr(std::min(bytes, rest().size()));
    while (!text.empty() && IsSpace(text[0])) text.remove_prefix(1);
    bool may_follow = text.empty();
    for (const std::string_view one : wanted) {
      if (text.starts_with(one)) co_return true;
      may_follow = may_follow || one.starts_with(text);
    }
    if (!may_follow || has_ended_) co_return may_follow;
    co_await More();
  }
}

}  // namespace macrame::runtime::markup
