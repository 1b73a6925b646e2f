// Machines and cables as agents report them, some of whom report nonsense: the advice names only
// machines that are there, no socket twice, and every cable that is there once.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "planner/offline/planner_answer.h"

namespace macrame::planner {
namespace {

constexpr uint64_t kGiB = 1ULL << 30;

struct Picker {
  std::mt19937_64 random;
  uint32_t operator()(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random() % (high - low + 1));
  }
};

v1::TopologyQuestion MakeQuestion(uint64_t seed) {
  Picker pick{std::mt19937_64(seed)};
  constexpr const char* kChips[] = {"Apple M3 Ultra", "Apple M4 Max", "Apple M4", "", "x86"};
  constexpr const char* kModels[] = {"Mac15,14", "Mac16,9", "Mac16,10", "", "MacNone1,1"};
  constexpr uint32_t kSockets[] = {0, 1, 2, 3, 4, 5, 6, 77, ~0u};
  v1::TopologyQuestion question;
  const uint32_t count = pick(1, 9);
  for (uint32_t i = 0; i < count; ++i) {
    v1::PresentMachine& machine = *question.add_machines();
    machine.set_name(absl::StrCat("mac-", i));
    const uint32_t kind = pick(0, 9) < 7 ? pick(0, 1) : pick(2, 4);
    machine.set_chip(kChips[kind]);
    machine.set_machine_model(kModels[pick(0, 4) == 0 ? pick(0, 4) : kind]);
    machine.set_gpu_cores(kind < 3 ? pick(8, 80) : 0);
    machine.set_memory_total_bytes(pick(0, 9) * 16 * kGiB);
    for (uint32_t left = pick(0, 2) * pick(0, 6); left > 0; --left) {
      machine.add_sockets(kSockets[pick(1, 8)]);
    }
    if (pick(0, 4) == 0) machine.add_sockets_to_avoid(kSockets[pick(0, 8)]);
  }
  for (uint32_t left = pick(0, 12); left > 0; --left) {
    v1::PresentCable& cable = *question.add_cables();
    cable.set_a(absl::StrCat("mac-", pick(0, count)));  // one is nobody's
    cable.set_b(absl::StrCat("mac-", pick(0, count)));
    cable.set_a_socket(kSockets[pick(0, 8)]);
    cable.set_b_socket(kSockets[pick(0, 8)]);
    cable.set_rdma(pick(0, 1) == 0);
    if (!cable.rdma()) cable.set_why_not("it is too old");
  }
  if (seed % 2 == 0) question.set_model("Llama-3.1-8B-Instruct-4bit");
  return question;
}

using Cables = google::protobuf::RepeatedPtrField<v1::TopologyCable>;

// Of each pair of machines one cable, between two that are there.
void CheckCables(const v1::TopologyQuestion& question, const Cables& cables) {
  std::set<std::string> names;
  for (const v1::PresentMachine& machine : question.machines()) names.insert(machine.name());
  std::set<std::pair<std::string, std::string>> pairs;
  std::map<std::pair<std::string, std::string>, int> new_sockets;
  for (const v1::TopologyCable& cable : cables) {
    EXPECT_EQ(names.count(cable.a()) + names.count(cable.b()), 2u) << cable.ShortDebugString();
    EXPECT_NE(cable.a(), cable.b());
    EXPECT_TRUE(pairs.insert(std::minmax(cable.a(), cable.b())).second) << "two cables of a pair";
    if (cable.state() != "missing") continue;
    EXPECT_EQ(cable.note(), "") << "nothing is to be said of a cable that is not there";
    for (const auto& [name, port] :
         {std::pair(cable.a(), cable.a_port()), std::pair(cable.b(), cable.b_port())}) {
      if (port.find("any free") != std::string::npos) continue;
      EXPECT_EQ(++new_sockets[std::pair(name, port)], 1) << name << " " << port;
    }
  }
}

TEST(HostileTopology, NamesOnlyWhatIsThereAndNoSocketTwice) {
  int meshes = 0, none = 0, present = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    v1::PlannerQuestion asked;
    *asked.mutable_topology() = MakeQuestion(seed);
    const v1::TopologyQuestion& question = asked.topology();
    const v1::PlannerAnswer answer = AnswerOf(asked);
    ASSERT_TRUE(answer.has_topology()) << answer.failure().message();
    const v1::TopologyAdvice& advice = answer.topology();
    EXPECT_FALSE(advice.notes().empty());
    EXPECT_EQ(advice.graph() == "none", advice.cables().empty()) << advice.graph();
    ++(advice.cables().empty() ? none : meshes);
    CheckCables(question, advice.cables());
    for (const v1::TopologyOption& option : advice.options()) {
      CheckCables(question, option.cables());
    }
    for (const v1::TopologyCable& cable : advice.cables()) {
      present += cable.state() == "present" ? 1 : 0;
      EXPECT_TRUE(std::isfinite(cable.tokens_per_second_without()));
    }
    EXPECT_TRUE(std::isfinite(advice.tokens_per_second()) &&
                std::isfinite(advice.tokens_per_second_now()));
    if (question.model().empty()) {
      EXPECT_EQ(advice.tokens_per_second(), 0) << "nobody asked";
    }
  }
  EXPECT_GT(meshes, 50);
  EXPECT_GT(none, 10);
  EXPECT_GT(present, 30);
}

// The cables that are advised, once they are laid as they are told, are those that are there.
TEST(HostileTopology, WhatIsAdvisedAndThenLaidIsAllThatIsNeeded) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Picker pick{std::mt19937_64(seed)};
    v1::PlannerQuestion asked;
    for (uint32_t i = pick(2, 9); i > 0; --i) {
      v1::PresentMachine& machine = *asked.mutable_topology()->add_machines();
      machine.set_name(absl::StrCat("mac-", i));
      machine.set_machine_model("Mac15,14");
      machine.set_chip("Apple M3 Ultra");
      machine.set_gpu_cores(80);
      machine.set_memory_total_bytes(256 * kGiB);
    }
    const v1::TopologyAdvice before = AnswerOf(asked).topology();
    for (const v1::TopologyCable& cable : before.cables()) {
      EXPECT_EQ(cable.state(), "missing");
      v1::PresentCable& laid = *asked.mutable_topology()->add_cables();
      laid.set_a(cable.a());
      laid.set_b(cable.b());
      const auto socket = [](const std::string& port) {
        return static_cast<uint32_t>(std::stoul(port.substr(port.rfind(' ') + 1)));
      };
      laid.set_a_socket(socket(cable.a_port()));
      laid.set_b_socket(socket(cable.b_port()));
      laid.set_rdma(true);
    }
    const v1::TopologyAdvice after = AnswerOf(asked).topology();
    EXPECT_EQ(after.graph(), before.graph());
    EXPECT_EQ(after.cables_size(), before.cables_size());
    EXPECT_EQ(after.spare_size(), 0);
    for (const v1::TopologyCable& cable : after.cables()) {
      EXPECT_EQ(cable.state(), "present") << cable.a() << " " << cable.b();
      EXPECT_EQ(cable.note(), "");
    }
  }
}

}  // namespace
}  // namespace macrame::planner
