#include "runtime/supervisor/port_reservation.h"

#include <gtest/gtest.h>

#include <utility>

namespace macrame::runtime {
namespace {

TEST(PortReservation, EachIsAnotherPort) {
  auto first = PortReservation::Bind("127.0.0.1");
  auto second = PortReservation::Bind("127.0.0.1");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->address(), second->address());
  PortReservation moved = *std::move(first);
  EXPECT_EQ(moved.address().rfind("127.0.0.1:", 0), 0u);
  moved.Release();
  EXPECT_FALSE(moved.address().empty()) << "the address stays known";
}

TEST(PortReservation, WrongAddressesAreErrors) {
  EXPECT_FALSE(PortReservation::Bind("localhost").ok());
  EXPECT_FALSE(PortReservation::Bind("").ok());
  EXPECT_FALSE(PortReservation::Bind("192.0.2.1").ok());
}

}  // namespace
}  // namespace macrame::runtime
