#include "agentd/node/lost_nodes.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

NodeFacts Node(char letter, const std::string& name, v1::NodeState state) {
  NodeFacts node;
  node.id = NodeId(std::string(32, letter));
  node.display_name = name;
  node.state = state;
  return node;
}

TEST(LostNodes, TheDeadAreErrorsBeforeAllElseAndThoseThatLeftAreNot) {
  std::vector<NodeFacts> nodes = {
      Node('a', "ada", v1::NODE_STATE_ALIVE), Node('b', "bess", v1::NODE_STATE_SUSPECT),
      Node('c', "cleo", v1::NODE_STATE_DEAD), Node('d', "dora", v1::NODE_STATE_LEFT)};
  nodes[2].state_reason.set_message("not heard for 5 s");
  v1::Diagnosis diagnosis;
  diagnosis.set_conclusion("all is well.");
  diagnosis.add_findings()->set_severity(v1::SEVERITY_INFO);
  AddLostNodes(nodes, {}, &diagnosis);
  ASSERT_EQ(diagnosis.findings_size(), 3);
  const v1::Finding& first = diagnosis.findings(0);
  EXPECT_EQ(first.severity(), v1::SEVERITY_ERROR);
  EXPECT_EQ(first.reason().code(), "NODE_DEAD");
  EXPECT_EQ(first.reason().node_id(), nodes[2].id.value());
  EXPECT_EQ(first.reason().message(), "cleo is dead: not heard for 5 s");
  ASSERT_EQ(first.steps_size(), 1);
  EXPECT_EQ(first.steps(0), "start agentd on it again");
  EXPECT_EQ(diagnosis.findings(1).severity(), v1::SEVERITY_WARNING);
  EXPECT_EQ(diagnosis.findings(2).severity(), v1::SEVERITY_INFO);
  EXPECT_EQ(diagnosis.conclusion(), "cleo is dead. Apart from that: all is well.");
}

TEST(LostNodes, OnlyThoseThatWereAskedFor) {
  const std::vector<NodeFacts> nodes = {Node('a', "ada", v1::NODE_STATE_ALIVE),
                                        Node('c', "cleo", v1::NODE_STATE_DEAD)};
  v1::Diagnosis diagnosis;
  AddLostNodes(nodes, {nodes[0].id.value()}, &diagnosis);
  EXPECT_EQ(diagnosis.findings_size(), 0);
  EXPECT_EQ(diagnosis.conclusion(), "");
}

TEST(LostNodes, OneWayNamesBothAndThePort) {
  NodeFacts to = Node('b', "bess", v1::NODE_STATE_ALIVE);
  to.identity.set_control_port(7001);
  to.identity.add_addresses()->set_ip("10.0.0.2");
  const v1::Reason reason = OneWayReachable(Node('a', "ada", v1::NODE_STATE_ALIVE), to);
  EXPECT_EQ(reason.code(), "ONE_WAY_REACHABLE");
  EXPECT_EQ(reason.node_id(), to.id.value());
  for (const char* part : {"ada hears bess", "TCP port 7001", "10.0.0.2"}) {
    EXPECT_NE(reason.message().find(part), std::string::npos) << reason.message();
  }
  EXPECT_NE(reason.remedy().find("firewall of bess"), std::string::npos) << reason.remedy();
}

}  // namespace
}  // namespace macrame::agentd
