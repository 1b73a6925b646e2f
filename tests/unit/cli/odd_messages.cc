#include "tests/unit/cli/odd_messages.h"

#include <google/protobuf/descriptor.h>

#include <limits>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/utf8.h"

namespace macrame::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int kDepthMax = 7;

class Filler {
 public:
  Filler(Oddity oddity, uint64_t seed) : oddity_(oddity), random_(seed) {}

  void Fill(Message* message, int depth) {
    const auto* descriptor = message->GetDescriptor();
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const FieldDescriptor* field = descriptor->field(i);
      const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
      if (is_message && depth >= kDepthMax) continue;
      if (field->is_map()) continue;
      const int count = !field->is_repeated() ? 1 : oddity_ == Oddity::kEmpty ? 1 : Below(3);
      for (int j = 0; j < count; ++j) FillField(message, field, depth);
    }
  }

 private:
  bool IsWild() const { return oddity_ == Oddity::kWild; }
  int Below(int limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }

  template <typename Value, typename Set, typename Add>
  void Put(const FieldDescriptor* field, const Value& value, const Set& set, const Add& add) {
    if (field->is_repeated()) {
      add(value);
    } else {
      set(value);
    }
  }

  template <typename Number>
  Number Integer() {
    if (!IsWild()) return 0;
    const Number choices[] = {
        0, 1, 2, 63, std::numeric_limits<Number>::max(), std::numeric_limits<Number>::min()};
    return choices[Below(6)];
  }

  double Real() {
    if (!IsWild()) return 0;
    const double choices[] = {0,
                              0.5,
                              -1,
                              1e18,
                              std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::infinity()};
    return choices[Below(6)];
  }

  std::string Text() {
    if (!IsWild()) return "";
    const std::string choices[] = {kSteering, "", std::string(300, 'w'), "\xE6\xA9\x9F\xE6\xA2\xB0",
                                   absl::StrCat("x", kSteering)};
    return choices[Below(5)];
  }

  // One macro each would be shorter; a line each can be read.
  void FillField(Message* message, const FieldDescriptor* field, int depth) {
    const auto* reflection = message->GetReflection();
    const auto put = [&](const auto& value, auto set, auto add) {
      Put(
          field, value, [&](const auto& one) { (reflection->*set)(message, field, one); },
          [&](const auto& one) { (reflection->*add)(message, field, one); });
    };
    using R = google::protobuf::Reflection;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return put(Integer<int32_t>(), &R::SetInt32, &R::AddInt32);
      case FieldDescriptor::CPPTYPE_INT64:
        return put(Integer<int64_t>(), &R::SetInt64, &R::AddInt64);
      case FieldDescriptor::CPPTYPE_UINT32:
        return put(Integer<uint32_t>(), &R::SetUInt32, &R::AddUInt32);
      case FieldDescriptor::CPPTYPE_UINT64:
        return put(Integer<uint64_t>(), &R::SetUInt64, &R::AddUInt64);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return put(Real(), &R::SetDouble, &R::AddDouble);
      case FieldDescriptor::CPPTYPE_FLOAT:
        return put(static_cast<float>(Real()), &R::SetFloat, &R::AddFloat);
      case FieldDescriptor::CPPTYPE_BOOL:
        return put(IsWild() && Below(2) == 1, &R::SetBool, &R::AddBool);
      case FieldDescriptor::CPPTYPE_ENUM:
        return put(IsWild() ? (Below(4) == 0 ? 99 : Below(7)) : 0, &R::SetEnumValue,
                   &R::AddEnumValue);
      case FieldDescriptor::CPPTYPE_STRING:
        return put(Text(), &R::SetString, &R::AddString);
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(field->is_repeated() ? reflection->AddMessage(message, field)
                                         : reflection->MutableMessage(message, field),
                    depth + 1);
    }
  }

  const Oddity oddity_;
  std::mt19937_64 random_;
};

}  // namespace

void FillOddly(Oddity oddity, uint64_t seed, Message* message) {
  Filler(oddity, seed).Fill(message, 0);
}

std::string WhatSteers(std::string_view text) {
  const std::string_view all = text;
  while (!text.empty()) {
    const Utf8Character character = FirstCharacter(text);
    const size_t at = all.size() - text.size();
    if (character.size == 0) return absl::StrCat("no UTF-8 at ", at);
    const char32_t c = character.value;
    const bool is_control = (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7F && c < 0xA0);
    if (is_control || (c >= 0x202A && c <= 0x202E)) {
      return absl::StrFormat("U+%04X at %d", static_cast<uint32_t>(c), at);
    }
    text.remove_prefix(character.size);
  }
  if (absl::StartsWith(absl::string_view(all.data(), all.size()), "FAKED") ||
      all.find("\nFAKED") != std::string_view::npos) {
    return "a line that a message began";
  }
  return "";
}

std::string WithoutColours(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) != "\x1b[") {
      plain += text[i];
      continue;
    }
    size_t end = i + 2;
    while (end < text.size() && (absl::ascii_isdigit(static_cast<unsigned char>(text[end])))) ++end;
    if (end >= text.size() || text[end] != 'm') return "not a colour";
    i = end;
  }
  return plain;
}

}  // namespace macrame::cli
