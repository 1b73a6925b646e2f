#include "tests/tidy/cpp_outline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace macrame::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<CppFunction> Functions(const std::string& code) {
  SourceFile file{"planner/sample.cc", {}};
  std::istringstream in(code);
  for (std::string line; std::getline(in, line);) file.lines.push_back(line);
  return OutlineOf(file).functions;
}

// "name first-last" of each, by lines counted from 0.
std::vector<std::string> Found(const std::string& code) {
  std::vector<std::string> found;
  for (const CppFunction& function : Functions(code)) {
    found.push_back(function.name + " " + std::to_string(function.line) + "-" +
                    std::to_string(function.last_line));
  }
  return found;
}

size_t ComplexityOf(const std::string& body) {
  const std::vector<CppFunction> found = Functions("void Run(int a) {\n" + body + "\n}\n");
  EXPECT_EQ(found.size(), 1u) << body;
  return found.empty() ? 0 : found[0].complexity;
}

TEST(CppOutline, ShortSignaturesAreFound) {
  EXPECT_THAT(Found("int One() { return 1; }\n"
                    "void Node::Start() {\n"
                    "  Run();\n"
                    "}\n"),
              ElementsAre("One 0-0", "Node::Start 1-3"));
}

TEST(CppOutline, WrappedParametersAreFound) {
  EXPECT_THAT(Found("std::vector<std::pair<int, int>> Places(\n"
                    "    const std::map<int, int>& a,\n"
                    "    int b = 3, Options options = {}) {\n"
                    "  return {};\n"
                    "}\n"),
              ElementsAre("Places 0-4"));
}

TEST(CppOutline, InitialiserListsEndAtTheBody) {
  EXPECT_THAT(Found("Node::Node(int a,\n"
                    "           int b)\n"
                    "    : Base<int>{a},\n"
                    "      a_(a),\n"
                    "      b_{b},\n"
                    "      run_([this] { Run(); }) {\n"
                    "  Start();\n"
                    "}\n"
                    "Node::~Node() { Stop(); }\n"),
              ElementsAre("lambda 5-5", "Node::Node 0-7", "Node::~Node 8-8"));
}

TEST(CppOutline, MembersAreFoundBehindAccessAndFields) {
  EXPECT_THAT(Found("class Node : public Base {\n"
                    " public:\n"
                    "  explicit Node(int a) : a_{a} {}\n"
                    "  int a() const { return a_; }\n"
                    "  virtual void Start() = 0;\n"
                    "  Node(const Node&) = delete;\n"
                    "\n"
                    " private:\n"
                    "  struct Row {\n"
                    "    bool Holds() const noexcept override { return true; }\n"
                    "    std::function<void(int)> call{};\n"
                    "  };\n"
                    "  int a_ = 0, b_{1};\n"
                    "};\n"),
              ElementsAre("Node 2-2", "a 3-3", "Holds 9-9"));
}

TEST(CppOutline, OperatorsAreFound) {
  EXPECT_THAT(Found("struct Sum {\n"
                    "  bool operator()(int a) const { return a > 0; }\n"
                    "  bool operator<(const Sum& other) const { return a < other.a; }\n"
                    "  explicit operator bool() const { return a != 0; }\n"
                    "  Sum& operator=(Sum other) { return *this; }\n"
                    "  int operator[](int i) { return i; }\n"
                    "  auto operator<=>(const Sum&) const = default;\n"
                    "};\n"),
              ElementsAre("operator() 1-1", "operator< 2-2", "operator bool 3-3", "operator= 4-4",
                          "operator[] 5-5"));
}

TEST(CppOutline, TemplatesAndRequirementsAreFound) {
  EXPECT_THAT(Found("template <typename T, typename F = std::function<void(T)>>\n"
                    "T First(const std::vector<T>& of) {\n"
                    "  return of[0];\n"
                    "}\n"
                    "template <typename T>\n"
                    "  requires requires(T t) { t.size(); }\n"
                    "size_t SizeOf(const T& of) {\n"
                    "  return of.size();\n"
                    "}\n"
                    "template <int N>\n"
                    "int Twice(int a)\n"
                    "  requires(N > 2)\n"
                    "{\n"
                    "  return 2 * a;\n"
                    "}\n"
                    "template <>\n"
                    "struct hash<Node> {\n"
                    "  size_t operator()(const Node& a) const { return a.hash(); }\n"
                    "};\n"),
              ElementsAre("First 0-3", "SizeOf 4-8", "Twice 9-14", "operator() 17-17"));
}

TEST(CppOutline, TrailingTypesAndQualifiersAreFound) {
  EXPECT_THAT(Found("constexpr auto Ends(int a) noexcept(true) -> std::pair<int, int> {\n"
                    "  return {a, a};\n"
                    "}\n"
                    "[[nodiscard]] static inline bool Holds() { return true; }\n"
                    "alignas(64) int wide{0};\n"
                    "decltype(wide) other{1};\n"
                    "void Locked() MACRAME_EXCLUDES(mutex_) { Run(); }\n"),
              ElementsAre("Ends 0-2", "Holds 3-3", "Locked 6-6"));
}

TEST(CppOutline, WhatIsNoFunctionIsNotFound) {
  EXPECT_THAT(Found("#define MAKE(x) \\\n"
                    "  void x() {\n"
                    "namespace a::b {\n"
                    "enum class Kind : int { kOne = 1, kTwo };\n"
                    "struct Point {\n"
                    "  int x = 0, y{0};\n"
                    "};\n"
                    "const std::map<int, Point> kPoints = {{1, {2, 3}}, {Two(), {3, 4}}};\n"
                    "std::atomic<int> count{0};\n"
                    "template <typename T>\n"
                    "concept Sized = requires(T t) { t.size(); };\n"
                    "inline constexpr int kList[] = {1, 2};\n"
                    "// void Gone() {\n"
                    "/* void Gone() { */\n"
                    "constexpr char kCode[] = \"void Code() {\";\n"
                    "constexpr char kRaw[] = R\"re(void Raw() { \" )re\";\n"
                    "constexpr char kBrace = '{';\n"
                    "constexpr int kMany = 1'000'000;\n"
                    "}  // namespace a::b\n"),
              IsEmpty());
}

TEST(CppOutline, FunctionsAreFoundInsideNamespaces) {
  EXPECT_THAT(Found("namespace a {\n"
                    "namespace {\n"
                    "int One() { return 1; }\n"
                    "}  // namespace\n"
                    "extern \"C\" {\n"
                    "int Two() { return 2; }\n"
                    "}\n"
                    "extern \"C\" int Three() { return 3; }\n"
                    "}  // namespace a\n"),
              ElementsAre("One 2-2", "Two 5-5", "Three 7-7"));
}

TEST(CppOutline, LambdasAreFoundOnlyOutsideFunctions) {
  EXPECT_THAT(Found("const std::vector<Row> kRows = {\n"
                    "    {\"a\", [](int a) -> int { return a; }},\n"
                    "    {\"b\", [] {\n"
                    "       return values[2];\n"
                    "     }},\n"
                    "};\n"
                    "void Run() {\n"
                    "  Each([&](int a) { Take(a); });\n"
                    "}\n"),
              ElementsAre("lambda 1-1", "lambda 2-4", "Run 6-8"));
}

TEST(CppOutline, ComplexityCountsBranches) {
  EXPECT_EQ(ComplexityOf("  return;"), 1u);
  EXPECT_EQ(ComplexityOf("  if (a) Run(); else if (a > 1 && a < 3) Stop();"), 4u);
  EXPECT_EQ(ComplexityOf("  for (;;) {}\n  while (a || b) {}\n  do {} while (a);"), 5u);
  EXPECT_EQ(ComplexityOf("  switch (a) {\n    case 1:\n    case 2:\n    default: Run();\n  }"), 3u);
  EXPECT_EQ(ComplexityOf("  return a ? 1 : 2;"), 2u);
  EXPECT_EQ(ComplexityOf("  try { Run(); } catch (const Error&) {}"), 2u);
}

TEST(CppOutline, ComplexityCountsBranchesOfLambdasAndNoReferences) {
  EXPECT_EQ(ComplexityOf("  Each([&](int a) { if (a) Take(a); });"), 2u);
  EXPECT_EQ(ComplexityOf("  auto&& b = Make();\n  const char* c = \"if && ||\";  // if"), 1u);
}

}  // namespace
}  // namespace macrame::tests
