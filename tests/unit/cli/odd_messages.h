#pragma once

// Messages that no well-behaved agent sends: every field of them is filled with what hurts, by a
// seed, or left at its default with everything below it there, as from an agent that knows less.

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace macrame::cli {

// Clears the screen, turns the direction of writing, begins a line of its own.
inline constexpr char kSteering[] =
    "\x1b[2J\xE2\x80\xAEn\xC2\x9B"
    "31m\rame\nFAKED";

enum class Oddity {
  kEmpty,  // each list has one entry, each message is there, and no field says anything
  kWild,   // texts that steer, numbers at their limits, enums that nobody knows
};

void FillOddly(Oddity oddity, uint64_t seed, google::protobuf::Message* message);

// `Message` filled so.
template <typename Message>
Message Odd(Oddity oddity, uint64_t seed) {
  Message message;
  FillOddly(oddity, seed, &message);
  return message;
}

// What in it a terminal would obey, or that is not text; "" when there is nothing.
std::string WhatSteers(std::string_view text);
// The text without colours.
std::string WithoutColours(std::string_view text);

}  // namespace macrame::cli
