#include "runtime/supervisor/memory_admission.h"

#include <gtest/gtest.h>

namespace macrame::runtime {
namespace {

TEST(MemoryAdmission, PromisesAddUp) {
  const NodeMemory memory{Bytes(100), Bytes(100)};
  EXPECT_TRUE(AdmitMemory(Bytes(100), {}, memory, "n").ok());
  EXPECT_FALSE(AdmitMemory(Bytes(101), {}, memory, "n").ok());
  EXPECT_TRUE(AdmitMemory(Bytes(40), {{Bytes(60), Bytes(0)}}, memory, "n").ok());
  EXPECT_FALSE(AdmitMemory(Bytes(41), {{Bytes(60), Bytes(0)}}, memory, "n").ok());
}

TEST(MemoryAdmission, WhatIsResidentIsNotCountedTwice) {
  // 60 are promised, 50 of them already taken from what was free.
  const NodeMemory memory{Bytes(100), Bytes(45)};
  EXPECT_TRUE(AdmitMemory(Bytes(35), {{Bytes(60), Bytes(50)}}, memory, "n").ok());
  EXPECT_FALSE(AdmitMemory(Bytes(36), {{Bytes(60), Bytes(50)}}, memory, "n").ok());
  EXPECT_FALSE(AdmitMemory(Bytes(1), {{Bytes(60), Bytes(10)}}, memory, "n").ok());
  EXPECT_TRUE(AdmitMemory(Bytes(1), {{Bytes(60), Bytes(80)}}, memory, "n").ok());
}

TEST(MemoryAdmission, UnknownFreeMemoryIsNotZero) {
  EXPECT_TRUE(AdmitMemory(Bytes(10), {}, {Bytes(100), Bytes(0)}, "n").ok());
}

}  // namespace
}  // namespace macrame::runtime
