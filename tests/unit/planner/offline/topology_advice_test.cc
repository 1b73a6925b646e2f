// Which cable goes where, and what it is worth.

#include <gtest/gtest.h>

#include <map>

#include "planner/offline/planner_answer.h"

namespace macrame::planner {
namespace {

constexpr uint64_t kGiB = 1ULL << 30;

v1::TopologyAdvice Advice(const std::string& buy, const std::string& model = "") {
  v1::PlannerQuestion question;
  question.mutable_topology()->set_buy(buy);
  question.mutable_topology()->set_model(model);
  const v1::PlannerAnswer answer = AnswerOf(question);
  EXPECT_TRUE(answer.has_topology()) << answer.failure().message();
  return answer.topology();
}

TEST(Topology, PairForTwoMeshUpToFourOneRingForWhatNoDeskHolds) {
  EXPECT_EQ(Advice("2x mac-mini-m4-pro-64gb").graph(), "pair");
  const v1::TopologyAdvice mesh = Advice("4x mac-studio-m3-ultra-512gb", "Qwen3-235B-A22B-8bit");
  EXPECT_EQ(mesh.graph(), "mesh");
  EXPECT_EQ(mesh.cables_size(), 6);
  for (const v1::TopologyCable& cable : mesh.cables()) {
    EXPECT_GT(cable.tokens_per_second_without(), 0);
    EXPECT_LT(cable.tokens_per_second_without(), mesh.tokens_per_second());
  }
  const v1::TopologyAdvice ring = Advice("6x mac-mini-m4-pro-64gb", "Qwen3-235B-A22B-8bit");
  EXPECT_EQ(ring.graph(), "ring");
  EXPECT_EQ(ring.cables_size(), 6);
}

TEST(Topology, EachSocketHasOneCable) {
  const v1::TopologyAdvice mesh = Advice("4x mac-studio-m3-ultra-512gb");
  std::map<std::string, int> used;
  for (const v1::TopologyCable& cable : mesh.cables()) {
    EXPECT_EQ(++used[cable.a() + cable.a_port()], 1);
    EXPECT_EQ(++used[cable.b() + cable.b_port()], 1);
  }
}

TEST(Topology, NoCableIsToldIntoTheSocketBesideEthernet) {
  for (const char* buy : {"4x mac-studio-m3-ultra-512gb", "4x mac-studio-m4-max-128gb",
                          "6x mac-studio-m3-ultra-256gb"}) {
    const v1::TopologyAdvice advice = Advice(buy);
    for (const v1::TopologyCable& cable : advice.cables()) {
      EXPECT_NE(cable.a_port(), "Thunderbolt socket 1") << buy;
      EXPECT_NE(cable.b_port(), "Thunderbolt socket 1") << buy;
    }
  }
  EXPECT_EQ(Advice("2x mac-mini-m4-pro-64gb").cables(0).a_port(), "Thunderbolt socket 1");
}

TEST(Topology, AboveFourDesksOrARingAsTheModelIsFaster) {
  const v1::TopologyAdvice desks = Advice("8x mac-studio-m3-ultra-256gb", "Qwen3-235B-A22B-8bit");
  EXPECT_EQ(desks.graph(), "desks");
  EXPECT_EQ(desks.cables_size(), 12) << "two meshes of four";
  ASSERT_EQ(desks.options_size(), 2);
  EXPECT_GT(desks.options(0).tokens_per_second(), desks.options(1).tokens_per_second());
  EXPECT_EQ(desks.options(0).replicas(), 2u) << "each desk serves one";
  for (const v1::TopologyCable& cable : desks.cables()) {
    EXPECT_LT(cable.tokens_per_second_without(), desks.tokens_per_second()) << "of its own desk";
  }
  const v1::TopologyAdvice ring = Advice("6x mac-mini-m4-pro-64gb", "Qwen3-235B-A22B-8bit");
  EXPECT_EQ(ring.graph(), "ring") << "no desk of four holds it";
  EXPECT_EQ(ring.cables_size(), 6);
  EXPECT_GT(ring.options(0).tokens_per_second(), ring.options(1).tokens_per_second());
  const v1::TopologyAdvice both = Advice("8x mac-studio-m3-ultra-256gb");
  ASSERT_EQ(both.options_size(), 2);
  EXPECT_EQ(both.options(0).graph(), "desks");
  EXPECT_EQ(both.options(1).graph(), "ring");
  EXPECT_EQ(both.options(1).cables_size(), 8);
  EXPECT_NE(both.options(0).suits(), both.options(1).suits());
}

v1::PresentMachine Studio(const std::string& name) {
  v1::PresentMachine machine;
  machine.set_name(name);
  machine.set_machine_model("Mac15,14");
  machine.set_chip("Apple M3 Ultra");
  machine.set_gpu_cores(80);
  machine.set_memory_total_bytes(256 * kGiB);
  return machine;
}

v1::PresentCable Present(const std::string& a, uint32_t a_socket, const std::string& b,
                         uint32_t b_socket, bool rdma = true) {
  v1::PresentCable cable;
  cable.set_a(a);
  cable.set_a_socket(a_socket);
  cable.set_b(b);
  cable.set_b_socket(b_socket);
  cable.set_rdma(rdma);
  return cable;
}

TEST(Topology, OfMachinesThatAreThereItSaysWhatIsMissingAndWhatIsInTheWrongSocket) {
  v1::PlannerQuestion question;
  v1::TopologyQuestion& topology = *question.mutable_topology();
  for (const char* name : {"north", "east", "south"}) *topology.add_machines() = Studio(name);
  *topology.add_cables() = Present("east", 1, "north", 3);
  *topology.add_cables() = Present("east", 2, "south", 2, false);
  topology.mutable_cables(1)->set_why_not("RDMA is off on south");
  *topology.add_cables() = Present("north", 1, "east", 4);
  topology.set_model("Llama-3.3-70B-Instruct-8bit");
  const v1::TopologyAdvice advice = AnswerOf(question).topology();
  EXPECT_EQ(advice.graph(), "mesh");
  std::map<std::string, v1::TopologyCable> cables;
  for (const v1::TopologyCable& cable : advice.cables()) {
    cables[std::min(cable.a(), cable.b()) + "-" + std::max(cable.a(), cable.b())] = cable;
  }
  ASSERT_EQ(cables.size(), 3u);
  EXPECT_EQ(cables["east-north"].state(), "present");
  EXPECT_NE(cables["east-north"].note().find("move it on east from socket 1"), std::string::npos)
      << cables["east-north"].note();
  EXPECT_NE(cables["east-south"].note().find("RDMA is off on south"), std::string::npos);
  const v1::TopologyCable& missing = cables["north-south"];
  EXPECT_EQ(missing.state(), "missing");
  for (const std::string& port : {missing.a_port(), missing.b_port()}) {
    EXPECT_NE(port, "Thunderbolt socket 1");
  }
  EXPECT_NE(missing.a() == "north" ? missing.a_port() : missing.b_port(), "Thunderbolt socket 3")
      << "there is a cable in it";
  ASSERT_EQ(advice.spare_size(), 1) << "a second cable between two machines";
  EXPECT_GT(advice.tokens_per_second(), advice.tokens_per_second_now());
  EXPECT_GT(advice.tokens_per_second_now(), 0);
}

TEST(Topology, CablesThatAreThereDecideWhoSharesADesk) {
  v1::PlannerQuestion question;
  v1::TopologyQuestion& topology = *question.mutable_topology();
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    *topology.add_machines() = Studio(name);
  }
  const char* desks[2][4] = {{"a", "c", "e", "g"}, {"b", "d", "f", "h"}};
  for (const auto& desk : desks) {
    for (uint32_t i = 0; i < 4; ++i) {
      for (uint32_t j = i + 1; j < 4; ++j) {
        *topology.add_cables() = Present(desk[i], 1 + j, desk[j], 2 + i);
      }
    }
  }
  const v1::TopologyAdvice advice = AnswerOf(question).topology();
  EXPECT_EQ(advice.graph(), "desks");
  EXPECT_EQ(advice.cables_size(), 12);
  for (const v1::TopologyCable& cable : advice.cables()) EXPECT_EQ(cable.state(), "present");
  EXPECT_TRUE(advice.spare().empty());
}

TEST(Topology, ACableIsCostedLikeThoseThatAreAlike) {
  const v1::TopologyAdvice desks = Advice("40x mac-studio-m3-ultra-256gb", "Qwen3-235B-A22B-8bit");
  ASSERT_EQ(desks.cables_size(), 60);
  const double without = desks.cables(0).tokens_per_second_without();
  EXPECT_GT(without, 0);
  for (const v1::TopologyCable& cable : desks.cables()) {
    EXPECT_EQ(cable.tokens_per_second_without(), without) << cable.a() << " " << cable.b();
  }
  // A desk of two kinds: cables between different kinds are worth different speeds.
  const v1::TopologyAdvice mixed =
      Advice("2x mac-studio-m3-ultra-96gb, 2x mac-mini-m4-pro-24gb", "Llama-3.3-70B-Instruct-8bit");
  ASSERT_EQ(mixed.cables_size(), 6);
  std::map<std::string, double> speeds;
  for (const v1::TopologyCable& cable : mixed.cables()) {
    const std::string pair = cable.a().substr(0, 8) + cable.b().substr(0, 8);
    const auto [known, is_new] = speeds.emplace(pair, cable.tokens_per_second_without());
    EXPECT_EQ(known->second, cable.tokens_per_second_without()) << pair;
  }
  EXPECT_EQ(speeds.size(), 3u);
}

TEST(Topology, WithoutACableTheMachinesOutsideOfItsDeskCount) {
  // The M2 Ultra alone is as fast as all, and no second pair does what the first did.
  const std::string model = "Llama-3.3-70B-Instruct-4bit";
  const v1::TopologyAdvice pair =
      Advice("2x mac-mini-m4-pro-64gb, mac-studio-m2-ultra-192gb", model);
  ASSERT_EQ(pair.cables_size(), 1);
  EXPECT_GT(pair.tokens_per_second(), 12);
  EXPECT_EQ(pair.cables(0).tokens_per_second_without(), pair.tokens_per_second());
  const v1::TopologyAdvice uneven =
      Advice("4x mac-studio-m3-ultra-512gb, 2x mac-mini-m4-pro-64gb", model);
  ASSERT_EQ(uneven.cables_size(), 7);
  EXPECT_EQ(uneven.cables(6).a().substr(0, 8), "mac-mini");
  EXPECT_EQ(uneven.cables(6).tokens_per_second_without(), uneven.tokens_per_second());
  EXPECT_LT(uneven.cables(0).tokens_per_second_without(), uneven.tokens_per_second());
  bool says_up_to = false;
  for (const std::string& note : uneven.notes()) {
    says_up_to = says_up_to || note == "2 desks: 7 cables, up to 3 sockets of each machine";
  }
  EXPECT_TRUE(says_up_to) << "the minis need one";
}

TEST(Topology, SaysWhyOneWayIsAdvisedAndWhenToTakeTheOther) {
  const std::string no_model = Advice("8x mac-studio-m3-ultra-256gb").notes(0);
  EXPECT_NE(no_model.find("desks are advised: each desk serves by itself"), std::string::npos)
      << no_model;
  EXPECT_NE(no_model.find("take the ring for one model that no desk holds"), std::string::npos);
  const std::string ring = Advice("6x mac-mini-m4-pro-64gb", "Qwen3-235B-A22B-8bit").notes(0);
  EXPECT_NE(ring.find("the ring is advised: "), std::string::npos) << ring;
  EXPECT_NE(ring.find("over the desks "), std::string::npos) << ring;
  EXPECT_NE(ring.find("take desks for"), std::string::npos) << ring;
  // One machine holds it: no cable makes a difference.
  const std::string tie = Advice("8x mac-studio-m3-ultra-512gb", "Qwen3-0.6B-4bit").notes(0);
  EXPECT_NE(tie.find("though the ring is as fast for Qwen3-0.6B-4bit"), std::string::npos) << tie;
}

TEST(Topology, ARingThatIsThereIsNotToldToBeTakenApartForNothing) {
  v1::PlannerQuestion question;
  v1::TopologyQuestion& topology = *question.mutable_topology();
  const std::vector<std::string> names = {"a", "b", "c", "d", "e", "f"};
  for (const std::string& name : names) *topology.add_machines() = Studio(name);
  for (size_t i = 0; i < names.size(); ++i) {
    *topology.add_cables() = Present(names[i], 2, names[(i + 1) % names.size()], 3);
  }
  const v1::TopologyAdvice advice = AnswerOf(question).topology();
  EXPECT_EQ(advice.graph(), "ring");
  EXPECT_NE(advice.notes(0).find("all its cables are there"), std::string::npos) << advice.notes(0);
}

TEST(Topology, MachinesWithoutThunderbolt5StayOutside) {
  const v1::TopologyAdvice advice =
      Advice("2x mac-studio-m3-ultra-512gb, 1x macbook-pro-m3-max-64gb");
  EXPECT_EQ(advice.graph(), "pair");
  EXPECT_EQ(advice.cables_size(), 1);
  EXPECT_EQ(Advice("2x mac-mini-m4-16gb").graph(), "none");
}

}  // namespace
}  // namespace macrame::planner
