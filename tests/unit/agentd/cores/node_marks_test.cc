#include "agentd/cores/node_marks.h"

#include <gtest/gtest.h>

#include <string>

namespace macrame::agentd {
namespace {

constexpr char kNode[] = "0123456789abcdef0123456789abcdef";

v1::MarkNodeRequest Label(const std::string& key, const std::string& value) {
  v1::MarkNodeRequest request;
  request.set_node_id(kNode);
  v1::NodeLabel& label = *request.add_labels();
  label.set_key(key);
  label.set_value(value);
  return request;
}

v1::NodeMarks After(const MarksChange& change) {
  v1::NodeMarks marks;
  EXPECT_TRUE(marks.ParseFromString(change.value));
  return marks;
}

TEST(NodeMarks, LabelsAreSetChangedAndRemoved) {
  const auto first = DecideMarks(Label("rack", "a"), nullptr);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->response.changed());
  v1::NodeMarks marks = After(*first);
  EXPECT_EQ(marks.node_id(), kNode);
  EXPECT_FALSE(DecideMarks(Label("rack", "a"), &marks)->response.changed()) << "it was so before";
  marks = After(*DecideMarks(Label("owner/team", "ml"), &marks));
  ASSERT_EQ(marks.labels_size(), 2);
  EXPECT_EQ(marks.labels(0).key(), "owner/team") << "in the order of their keys";
  marks = After(*DecideMarks(Label("rack", "b"), &marks));
  EXPECT_EQ(marks.labels(1).value(), "b");
  v1::MarkNodeRequest without;
  without.set_node_id(kNode);
  without.add_removed("rack");
  without.add_removed("owner/team");
  const auto last = DecideMarks(without, &marks);
  EXPECT_TRUE(last->response.changed());
  EXPECT_EQ(last->value, "") << "nothing is said of it any more";
  EXPECT_FALSE(DecideMarks(without, nullptr)->response.changed());
}

TEST(NodeMarks, ATenantStaysUntilAnotherIsNamed) {
  v1::MarkNodeRequest request;
  request.set_node_id(kNode);
  request.set_tenant("acme");
  v1::NodeMarks marks = After(*DecideMarks(request, nullptr));
  EXPECT_EQ(marks.tenant(), "acme");
  marks = After(*DecideMarks(Label("rack", "a"), &marks));
  EXPECT_EQ(marks.tenant(), "acme");
  request.set_tenant("");
  marks = After(*DecideMarks(request, &marks));
  EXPECT_EQ(marks.tenant(), "");
  EXPECT_EQ(marks.labels_size(), 1);
}

TEST(NodeMarks, WhatIsNoWordIsRefused) {
  for (const char* bad : {"", "a b", "a=b", "a\n", "\xC3\xA4"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(DecideMarks(Label(bad, "v"), nullptr).status())) << bad;
  }
  EXPECT_FALSE(DecideMarks(Label("k", "a/b"), nullptr).ok());
  EXPECT_TRUE(DecideMarks(Label("k", ""), nullptr).ok());
  EXPECT_FALSE(DecideMarks(Label(std::string(kLabelBytesMax + 1, 'k'), "v"), nullptr).ok());
  v1::MarkNodeRequest request;
  request.set_node_id(kNode);
  request.set_tenant("Acme GmbH & Söhne");
  EXPECT_TRUE(DecideMarks(request, nullptr).ok()) << "as a key's tenant may be";
  request.set_tenant("acme\nevil");
  EXPECT_FALSE(DecideMarks(request, nullptr).ok());
  v1::MarkNodeRequest many;
  for (int i = 0; i <= kLabelsMax; ++i) many.add_labels()->set_key("k" + std::to_string(i));
  EXPECT_FALSE(DecideMarks(many, nullptr).ok());
}

}  // namespace
}  // namespace macrame::agentd
