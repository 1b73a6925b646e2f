// Which machines a cable joins: laws that hold for whatever machines and cables are there.

#include "planner/offline/cabling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "planner/link_costs.h"
#include "planner/offline/planner_answer.h"

namespace macrame::planner {
namespace {

CabledMachine Mac(int number, std::vector<uint32_t> sockets, std::vector<uint32_t> avoided = {}) {
  CabledMachine machine;
  machine.node.set_hostname(absl::StrCat("m", number));
  machine.node.set_node_id(absl::StrCat("m", number));
  machine.sockets = std::move(sockets);
  machine.sockets_to_avoid = std::move(avoided);
  return machine;
}

v1::PresentCable CableBetween(int a, uint32_t a_socket, int b, uint32_t b_socket,
                              bool rdma = true) {
  v1::PresentCable cable;
  cable.set_a(absl::StrCat("m", a));
  cable.set_a_socket(a_socket);
  cable.set_b(absl::StrCat("m", b));
  cable.set_b_socket(b_socket);
  cable.set_rdma(rdma);
  return cable;
}

struct Room {
  std::vector<CabledMachine> machines;
  std::vector<v1::PresentCable> present;
};

// Machines with three to five sockets, one of them to avoid in some, or with none; and some cables
// between them, each socket holding at most one.
Room RandomRoom(std::mt19937& random) {
  Room room;
  std::vector<std::vector<uint32_t>> free;
  const int count = 2 + static_cast<int>(random() % 9);
  for (int i = 0; i < count; ++i) {
    const bool has_avoided = random() % 3 == 0;
    std::vector<uint32_t> sockets;
    const uint32_t last = 3 + random() % 3;
    for (uint32_t socket = has_avoided ? 2 : 1; socket <= last + (has_avoided ? 1 : 0); ++socket) {
      sockets.push_back(socket);
    }
    if (random() % 7 == 0) sockets.clear();
    room.machines.push_back(
        Mac(i, sockets, has_avoided ? std::vector<uint32_t>{1} : std::vector<uint32_t>{}));
    if (has_avoided) sockets.push_back(1);
    std::shuffle(sockets.begin(), sockets.end(), random);
    free.push_back(sockets);
  }
  for (int i = static_cast<int>(random() % 8); i > 0; --i) {
    const int a = static_cast<int>(random() % count), b = static_cast<int>(random() % count);
    if (a == b || free[a].empty() || free[b].empty()) continue;
    room.present.push_back(CableBetween(a, free[a].back(), b, free[b].back(), random() % 2 == 0));
    free[a].pop_back();
    free[b].pop_back();
  }
  return room;
}

bool IsAvoided(const CabledMachine& machine, uint32_t socket) {
  return std::find(machine.sockets_to_avoid.begin(), machine.sockets_to_avoid.end(), socket) !=
         machine.sockets_to_avoid.end();
}

void ExpectSocketsHoldOneCableEach(const Room& room, const Cabling& way) {
  std::set<std::pair<int, uint32_t>> used;
  std::set<std::pair<int, int>> joined;
  for (const Cable& cable : way.cables) {
    ASSERT_NE(cable.a, cable.b);
    EXPECT_TRUE(joined.insert(std::minmax(cable.a, cable.b)).second) << "two cables for one pair";
    for (const auto& [machine, socket] :
         {std::pair(cable.a, cable.a_socket), std::pair(cable.b, cable.b_socket)}) {
      ASSERT_GT(socket, 0u) << "no socket is left for it";
      EXPECT_TRUE(used.insert({machine, socket}).second) << "two cables in one socket";
      if (cable.present == nullptr) {
        EXPECT_FALSE(IsAvoided(room.machines[machine], socket)) << "beside Ethernet";
      }
    }
  }
}

TEST(Cabling, NoSocketHoldsTwoCablesAndNoNewOneIsBesideEthernet) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    const Room room = RandomRoom(random);
    for (const Cabling& way : CablingsOf(room.machines, room.present)) {
      ExpectSocketsHoldOneCableEach(room, way);
      if (::testing::Test::HasFailure()) FAIL() << "round " << round;
    }
  }
}

TEST(Cabling, DesksAreWholeMeshesAndARingVisitsEachMachineOnce) {
  std::mt19937 random(6);
  for (int round = 0; round < 2000; ++round) {
    const Room room = RandomRoom(random);
    const auto able = std::count_if(room.machines.begin(), room.machines.end(),
                                    [](const CabledMachine& one) { return !one.sockets.empty(); });
    const std::vector<Cabling> ways = CablingsOf(room.machines, room.present);
    EXPECT_EQ(ways.empty(), able < 2) << "each has three sockets or more";
    for (const Cabling& way : ways) {
      std::map<int, int> degree;
      for (const Cable& cable : way.cables) {
        ++degree[cable.a];
        ++degree[cable.b];
      }
      if (way.graph == CableGraph::kRing) {
        EXPECT_EQ(degree.size(), static_cast<size_t>(able)) << "each takes part, and no other";
        EXPECT_EQ(way.cables.size(), static_cast<size_t>(able));
        for (const auto& [machine, cables] : degree) EXPECT_EQ(cables, 2) << machine;
        continue;
      }
      size_t expected = 0;
      std::set<int> placed;
      for (const std::vector<int>& desk : way.desks) {
        EXPECT_LE(desk.size(), static_cast<size_t>(kMeshRanksMax));
        expected += desk.size() * (desk.size() - 1) / 2;
        for (const int machine : desk) EXPECT_TRUE(placed.insert(machine).second);
      }
      EXPECT_EQ(placed.size(), static_cast<size_t>(able)) << "each has a desk, and no other";
      EXPECT_EQ(way.cables.size(), expected);
    }
    if (::testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

TEST(Cabling, ACableThatIsThereAndFitsIsKept) {
  const std::vector<CabledMachine> machines = {Mac(0, {1, 2, 3}), Mac(1, {1, 2, 3}),
                                               Mac(2, {1, 2, 3})};
  const std::vector<v1::PresentCable> present = {CableBetween(0, 2, 1, 3)};
  const std::vector<Cabling> ways = CablingsOf(machines, present);
  ASSERT_EQ(ways.size(), 1u);
  EXPECT_EQ(ways[0].graph, CableGraph::kMesh);
  const auto kept = std::find_if(ways[0].cables.begin(), ways[0].cables.end(),
                                 [](const Cable& cable) { return cable.present != nullptr; });
  ASSERT_NE(kept, ways[0].cables.end());
  EXPECT_EQ(kept->a_socket, 2u);
  EXPECT_EQ(kept->b_socket, 3u);
}

TEST(Cabling, OfTwoCablesBetweenTwoTheOneInGoodSocketsIsTaken) {
  const std::vector<CabledMachine> machines = {Mac(0, {2, 3, 4}, {1}), Mac(1, {1, 2, 3})};
  const std::vector<v1::PresentCable> present = {CableBetween(0, 1, 1, 1, true),
                                                 CableBetween(0, 3, 1, 2, false)};
  const std::vector<Cabling> ways = CablingsOf(machines, present);
  ASSERT_EQ(ways.size(), 1u);
  EXPECT_EQ(ways[0].graph, CableGraph::kPair);
  EXPECT_EQ(ways[0].cables[0].present, &present[1]);
}

TEST(Cabling, CablesOfMachinesThatNobodyKnowsAreNone) {
  const std::vector<CabledMachine> machines = {Mac(0, {1, 2, 3}), Mac(1, {1, 2, 3})};
  const std::vector<v1::PresentCable> present = {CableBetween(0, 1, 7, 1),
                                                 CableBetween(0, 2, 0, 3)};
  const std::vector<Cabling> ways = CablingsOf(machines, present);
  ASSERT_EQ(ways.size(), 1u);
  EXPECT_EQ(ways[0].cables[0].present, nullptr);
}

v1::PresentMachine Reported(const std::string& name) {
  v1::PresentMachine machine;
  machine.set_name(name);
  machine.set_chip("Apple M4 Pro");
  machine.set_machine_model("Mac16,11");
  machine.set_memory_total_bytes(uint64_t{64} << 30);
  return machine;
}

TEST(MachineAsReported, WhatAnAgentDoesNotTellTheTableDoes) {
  const CabledMachine mini = MachineAsReported(Reported("desk"));
  EXPECT_EQ(mini.kind, "mac-mini-m4-pro");
  EXPECT_EQ(mini.sockets, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_GT(mini.node.memory_usable_bytes(), 0u);
  EXPECT_LT(mini.node.memory_usable_bytes(), mini.node.memory_total_bytes());
  v1::PresentMachine unknown = Reported("desk");
  unknown.set_machine_model("Mac99,1");
  EXPECT_EQ(MachineAsReported(unknown).kind, "desk");
  EXPECT_EQ(MachineAsReported(unknown).sockets.size(), 3u) << "the fewest that there are";
  unknown.set_chip("Apple M2");
  EXPECT_TRUE(MachineAsReported(unknown).sockets.empty()) << "Thunderbolt 4";
  unknown.set_chip("");
  EXPECT_TRUE(MachineAsReported(unknown).sockets.empty());
}

TEST(MachineAsReported, SocketsToAvoidAreNoSockets) {
  v1::PresentMachine machine = Reported("desk");
  for (const uint32_t socket : {1, 2, 3}) machine.add_sockets(socket);
  machine.add_sockets_to_avoid(2);
  EXPECT_EQ(MachineAsReported(machine).sockets, (std::vector<uint32_t>{1, 3}));
}

v1::TopologyAdvice AdviceOn(const std::vector<v1::PresentMachine>& machines) {
  v1::PlannerQuestion question;
  for (const v1::PresentMachine& machine : machines) {
    *question.mutable_topology()->add_machines() = machine;
  }
  const v1::PlannerAnswer answer = AnswerOf(question);
  EXPECT_TRUE(answer.has_topology()) << answer.failure().message();
  return answer.topology();
}

std::string NotesOf(const v1::TopologyAdvice& advice) {
  std::string text;
  for (const std::string& note : advice.notes()) text += note + "\n";
  return text;
}

TEST(TopologyAdvice, OneSocketOnOneOfThreeIsNotToldAsNoRdmaAtAll) {
  std::vector<v1::PresentMachine> machines = {Reported("a"), Reported("b"), Reported("c")};
  machines[2].add_sockets(1);
  const v1::TopologyAdvice advice = AdviceOn(machines);
  EXPECT_EQ(advice.graph(), "none");
  EXPECT_EQ(NotesOf(advice).find("fewer than two machines"), std::string::npos) << NotesOf(advice);
  EXPECT_NE(NotesOf(advice).find("3 machines can do RDMA, and one of them has a single socket"),
            std::string::npos)
      << NotesOf(advice);
}

TEST(TopologyAdvice, OfOneMachineAndOfNoneIsThatNoCableIsNeeded) {
  EXPECT_NE(NotesOf(AdviceOn({Reported("a")})).find("no cable"), std::string::npos);
  v1::PlannerQuestion nothing;
  nothing.mutable_topology();
  EXPECT_TRUE(AnswerOf(nothing).has_failure());
  EXPECT_NE(AnswerOf(nothing).failure().message().find("no machine is named"), std::string::npos);
}

TEST(TopologyAdvice, EveryCableThatIsThereIsUsedOrSpare) {
  std::mt19937 random(8);
  for (int round = 0; round < 300; ++round) {
    const Room room = RandomRoom(random);
    v1::PlannerQuestion question;
    for (const CabledMachine& one : room.machines) {
      v1::PresentMachine machine = Reported(one.node.hostname());
      for (const uint32_t socket : one.sockets) machine.add_sockets(socket);
      for (const uint32_t socket : one.sockets_to_avoid) machine.add_sockets_to_avoid(socket);
      *question.mutable_topology()->add_machines() = machine;
    }
    for (const v1::PresentCable& cable : room.present) {
      *question.mutable_topology()->add_cables() = cable;
    }
    const v1::TopologyAdvice advice = AnswerOf(question).topology();
    int present = advice.spare_size(), missing = 0;
    for (const v1::TopologyCable& cable : advice.cables()) {
      present += cable.state() == "present";
      missing += cable.state() == "missing";
    }
    EXPECT_EQ(present, static_cast<int>(room.present.size())) << round;
    EXPECT_EQ(present + missing, advice.cables_size() + advice.spare_size()) << round;
  }
}

}  // namespace
}  // namespace macrame::planner
