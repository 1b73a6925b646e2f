// Plans, capacity and cables as people read them, from the planner's own answers.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "cli/format/capacity_view.h"
#include "cli/format/model_view.h"
#include "planner/offline/planner_answer.h"
#include "tests/golden/golden_files.h"

namespace macrame::cli {
namespace {

constexpr int kWidth = 120;

std::string PlanText(const std::string& cluster, const std::string& model, uint32_t bits,
                     const v1::PlacementOptions& placement = {}) {
  std::stringstream yaml;
  yaml << std::ifstream("deploy/catalogue/clusters/" + cluster + ".yaml").rdbuf();
  v1::PlannerQuestion question;
  question.mutable_plan()->set_cluster_yaml(yaml.str());
  question.mutable_plan()->set_model(model);
  question.mutable_plan()->set_bits(bits);
  *question.mutable_plan()->mutable_placement() = placement;
  const v1::PlannerAnswer answer = planner::AnswerOf(question);
  EXPECT_TRUE(answer.has_plan()) << answer.failure().message();
  return PlanView(answer.plan(), kWidth, Style());
}

TEST(GoldenPlanner, PlansOnDescribedClusters) {
  v1::PlacementOptions users;
  users.set_users(10);
  ExpectGolden("plan-studios-qwen3-8bit.txt",
               PlanText("four-studios", "Qwen3-235B-A22B", 8, users));
  ExpectGolden("plan-studios-kimi-4bit.txt", PlanText("four-studios", "Kimi-K2-Thinking", 4));
  ExpectGolden("plan-minis-72b-4bit.txt", PlanText("three-minis", "Qwen2.5-72B-Instruct", 4));
  ExpectGolden("plan-minis-32b-16bit.txt", PlanText("three-minis", "Qwen2.5-Coder-32B", 0));
  ExpectGolden("plan-minis-405b-4bit.txt", PlanText("three-minis", "Llama-3.1-405B-Instruct", 4));
  ExpectGolden("plan-macbooks-minimax-6bit.txt",
               PlanText("two-macbooks", "mlx-community/MiniMax-M2.5-6bit", 0));
}

TEST(GoldenPlanner, CapacityOfTheTiers) {
  for (const char* tier : {"starter", "professional", "enterprise"}) {
    v1::PlannerQuestion question;
    question.mutable_capacity()->set_tier(tier);
    question.mutable_capacity()->set_cloud_price(2000);
    const v1::PlannerAnswer answer = planner::AnswerOf(question);
    ASSERT_TRUE(answer.has_capacity()) << answer.failure().message();
    ExpectGolden(std::string("capacity-") + tier + ".txt",
                 CapacityView(answer.capacity(), kWidth, Style()));
  }
}

TEST(GoldenPlanner, WhatToBuy) {
  v1::PlannerQuestion question;
  question.mutable_capacity()->set_recommend(true);
  question.mutable_capacity()->add_models("Llama-3.3-70B-Instruct");
  question.mutable_capacity()->set_users(5);
  question.mutable_capacity()->set_tokens_per_second(4);
  const v1::PlannerAnswer answer = planner::AnswerOf(question);
  ASSERT_TRUE(answer.has_capacity()) << answer.failure().message();
  ExpectGolden("capacity-buy-70b.txt", CapacityView(answer.capacity(), kWidth, Style()));
}

TEST(GoldenPlanner, Cables) {
  v1::PlannerQuestion question;
  question.mutable_topology()->set_buy("3x mac-studio-m3-ultra-256gb, 1x mac-mini-m4-pro-64gb");
  question.mutable_topology()->set_model("Qwen3-235B-A22B-8bit");
  ExpectGolden("topology-mixed.txt",
               TopologyView(planner::AnswerOf(question).topology(), kWidth, Style()));
  question.mutable_topology()->set_buy("6x mac-mini-m4-pro-64gb");
  ExpectGolden("topology-six-model.txt",
               TopologyView(planner::AnswerOf(question).topology(), kWidth, Style()));
  question.mutable_topology()->clear_model();
  ExpectGolden("topology-six.txt",
               TopologyView(planner::AnswerOf(question).topology(), kWidth, Style()));
}

TEST(GoldenPlanner, CablesOfTheLiveCluster) {
  v1::PlannerQuestion question;
  v1::TopologyQuestion& topology = *question.mutable_topology();
  for (const char* name : {"north", "east", "south"}) {
    v1::PresentMachine& machine = *topology.add_machines();
    machine.set_name(name);
    machine.set_machine_model("Mac15,14");
    machine.set_chip("Apple M3 Ultra");
    machine.set_gpu_cores(80);
    machine.set_memory_total_bytes(uint64_t{256} << 30);
  }
  const auto cable = [&](const char* a, uint32_t a_socket, const char* b, uint32_t b_socket,
                         const char* why_not) {
    v1::PresentCable& one = *topology.add_cables();
    one.set_a(a);
    one.set_a_socket(a_socket);
    one.set_b(b);
    one.set_b_socket(b_socket);
    one.set_rdma(*why_not == '\0');
    one.set_why_not(why_not);
  };
  cable("north", 1, "east", 2, "");
  cable("east", 3, "south", 4, "RDMA is off on south");
  cable("south", 1, "east", 5, "");
  topology.set_model("Llama-3.3-70B-Instruct-8bit");
  ExpectGolden("topology-live.txt",
               TopologyView(planner::AnswerOf(question).topology(), kWidth, Style()));
}

}  // namespace
}  // namespace macrame::cli
