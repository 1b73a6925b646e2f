#include "tests/tidy/dead_declarations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace macrame::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

SourceFile File(const std::string& path, const std::string& code) {
  SourceFile file{path, {}};
  std::istringstream in(code);
  for (std::string line; std::getline(in, line);) file.lines.push_back(line);
  return file;
}

// "name:line" of each, of a header and the source beside it.
std::vector<std::string> Dead(const std::string& header, const std::string& source,
                              const std::string& test = "") {
  std::vector<std::string> dead;
  for (const DeadDeclaration& one :
       DeadDeclarations({File("planner/node.h", header), File("planner/node.cc", source)},
                        {File("tests/unit/planner/node_test.cc", test)})) {
    dead.push_back(one.name + ":" + std::to_string(one.line));
  }
  return dead;
}

TEST(DeadDeclarations, WhatIsOnlyDeclaredAndDefinedIsDead) {
  EXPECT_THAT(Dead("inline constexpr int kMost = 3;\n"
                   "int Twice(int a);\n"
                   "struct Node {\n"
                   "  int Start(bool at_once) const;\n"
                   "  int weight = 0;\n"
                   "};\n"
                   "using Nodes = std::vector<Node>;\n",
                   "int Twice(int a) { return 2 * a; }\n"
                   "int Node::Start(bool at_once) const { return 1; }\n"),
              ElementsAre("Nodes:6", "Start:3", "Twice:1", "kMost:0", "weight:4"));
}

TEST(DeadDeclarations, WhatIsUsedAnywhereIsNot) {
  EXPECT_THAT(Dead("inline constexpr int kMost = 3;\n"
                   "int Twice(int a);\n"
                   "int Half(int a);\n"
                   "#define HALF(x) \\\n"
                   "  Half(x)\n"
                   "struct Node {\n"
                   "  int weight = 0;\n"
                   "};\n",
                   "int Run(Node& a) { return HALF(Twice(a.weight) + kMost); }\n"),
              IsEmpty());
}

TEST(DeadDeclarations, CommentsAndStringsUseNothing) {
  EXPECT_THAT(Dead("// Twice is dead.\nint Twice(int a);\n", "const char* a = \"Twice(1)\";\n"),
              ElementsAre("Twice:1"));
}

TEST(DeadDeclarations, TestsKeepOnlyAccessorsAlive) {
  const std::string header =
      "class Node {\n"
      " public:\n"
      "  int weight() const { return weight_; }\n"
      "  int height() const { return height_; }\n"
      "  int Sum() const;\n"
      "};\n"
      "Node Make();\n"
      "inline void Run() { Make(); }\n";
  EXPECT_THAT(Dead(header, "void Start() { Run(); }\n",
                   "EXPECT_EQ(node.weight(), 1);\nEXPECT_EQ(node.Sum(), 1);\n"),
              ElementsAre("Sum:4", "height:3"));
}

TEST(DeadDeclarations, OverridesAndHooksOfOthersAreUsed) {
  EXPECT_THAT(Dead("class Node : public grpc::Reader {\n"
                   "  void OnDone() override;\n"
                   "  std::set<Node> nodes_ MACRAME_GUARDED_BY(mutex_);\n"
                   "  bool await_ready() const;\n"
                   "};\n",
                   "void Node::OnDone() { nodes_.clear(); }\n"),
              IsEmpty());
}

TEST(DeadDeclarations, AFunctionOfAnInterfaceThatNobodyCallsIsDead) {
  EXPECT_THAT(Dead("class Group {\n"
                   "  virtual void Meet() = 0;\n"
                   "};\n",
                   "class Ring : public Group {\n"
                   "  void Meet() override { Wait(); }\n"
                   "};\n"),
              ElementsAre("Meet:1"));
}

TEST(DeadDeclarations, AFieldWithoutAnyAccessorIsDead) {
  const SourceFile proto = File("proto/macrame/v1/node.proto",
                                "message Node {\n"
                                "  string node_id = 1;  // how_named\n"
                                "  repeated Port ports = 2;\n"
                                "  optional uint32 weight_max = 3;\n"
                                "  map<string, bool> marks_of = 4;\n"
                                "  reserved 5;\n"
                                "}\n");
  const auto dead = DeadFields({proto}, {File("planner/node.cc",
                                              "void Run(v1::Node& node) {\n"
                                              "  node.set_node_id(\"weight_max\");\n"
                                              "  Take(node.ports_size());\n"
                                              "}\n")});
  ASSERT_EQ(dead.size(), 2u);
  EXPECT_EQ(dead[0].name, "weight_max");
  EXPECT_EQ(dead[0].line, 3u);
  EXPECT_EQ(dead[1].name, "marks_of");
}

}  // namespace
}  // namespace macrame::tests
