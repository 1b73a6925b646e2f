#include "agentd/cores/model_integrity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using ::testing::HasSubstr;

class ModelIntegrityTest : public ::testing::Test {
 protected:
  v1::NodeModelFiles& Node(char digit) {
    v1::NodeModelFiles& node = *verification_.add_nodes();
    node.set_node_id(std::string(32, digit));
    return node;
  }
  static void Add(v1::NodeModelFiles& node, const std::string& name, const std::string& sha256,
                  v1::ModelFileState state = v1::MODEL_FILE_STATE_READ, uint64_t bytes = 100) {
    v1::ModelFile& file = *node.add_files();
    file.set_name(name);
    file.set_sha256(sha256);
    file.set_state(state);
    file.set_bytes(bytes);
  }
  // What became of the file of that node.
  const v1::ModelFile& File(int node, int file = 0) {
    return verification_.nodes(node).files(file);
  }
  bool Judge() {
    JudgeModelFiles(verification_);
    return verification_.passed();
  }

  v1::ModelVerification verification_;
};

TEST_F(ModelIntegrityTest, WhatIsAsDownloadedHoldsTheOthersToIt) {
  Add(Node('a'), "m", "good", v1::MODEL_FILE_STATE_AS_DOWNLOADED);
  Add(Node('b'), "m", "good");
  Add(Node('c'), "m", "other");
  EXPECT_FALSE(Judge());
  EXPECT_EQ(File(0).state(), v1::MODEL_FILE_STATE_AS_DOWNLOADED);
  EXPECT_EQ(File(1).state(), v1::MODEL_FILE_STATE_ALIKE);
  EXPECT_EQ(File(2).state(), v1::MODEL_FILE_STATE_ALTERED);
  EXPECT_THAT(File(2).note(), HasSubstr("as downloaded on aaaa"));
}

TEST_F(ModelIntegrityTest, OneDownloadWeighsMoreThanManyCopiesOfAnother) {
  Add(Node('a'), "m", "bad");
  Add(Node('b'), "m", "bad");
  Add(Node('c'), "m", "good", v1::MODEL_FILE_STATE_AS_DOWNLOADED);
  EXPECT_FALSE(Judge());
  EXPECT_EQ(File(0).state(), v1::MODEL_FILE_STATE_ALTERED);
  EXPECT_EQ(File(2).state(), v1::MODEL_FILE_STATE_AS_DOWNLOADED);
}

TEST_F(ModelIntegrityTest, WithoutDownloadsMostNodesAreRight) {
  Add(Node('a'), "m", "x");
  Add(Node('b'), "m", "y", v1::MODEL_FILE_STATE_READ, 60);
  Add(Node('c'), "m", "x");
  EXPECT_FALSE(Judge());
  EXPECT_EQ(File(0).state(), v1::MODEL_FILE_STATE_ALIKE);
  EXPECT_EQ(File(1).state(), v1::MODEL_FILE_STATE_TRUNCATED);
  EXPECT_THAT(File(1).note(), HasSubstr("60 of 100 bytes, on 2 of 3 nodes"));
}

// Whoever shortens a chat template has not lost a part of a download.
TEST_F(ModelIntegrityTest, AnEditedFileIsAlteredHoweverLongItIs) {
  for (const char* name : {"tokenizer_config.json", "chat_template.jinja", "vocab.txt",
                           "model-00001-of-00002.safetensors"}) {
    verification_.Clear();
    Add(Node('a'), name, "x");
    Add(Node('b'), name, "y", v1::MODEL_FILE_STATE_READ, 60);
    Add(Node('c'), name, "x");
    EXPECT_FALSE(Judge());
    EXPECT_EQ(File(1).state(), v1::MODEL_FILE_STATE_ALTERED) << name;
    EXPECT_THAT(File(1).note(), HasSubstr("it has 60 bytes, there 100")) << name;
  }
}

TEST_F(ModelIntegrityTest, TwoThatDifferAccuseNeither) {
  Add(Node('a'), "m", "x");
  Add(Node('b'), "m", "y");
  EXPECT_FALSE(Judge());
  EXPECT_EQ(File(0).state(), v1::MODEL_FILE_STATE_DIFFERS);
  EXPECT_EQ(File(1).state(), v1::MODEL_FILE_STATE_DIFFERS);
}

TEST_F(ModelIntegrityTest, DownloadsOfTwoRevisionsDiffer) {
  Add(Node('a'), "m", "x", v1::MODEL_FILE_STATE_AS_DOWNLOADED);
  Add(Node('b'), "m", "y", v1::MODEL_FILE_STATE_AS_DOWNLOADED);
  EXPECT_FALSE(Judge());
  EXPECT_EQ(File(0).state(), v1::MODEL_FILE_STATE_DIFFERS);
  EXPECT_THAT(File(1).note(), HasSubstr("different revisions"));
}

TEST_F(ModelIntegrityTest, ADamagedCopyHasNoVote) {
  Add(Node('a'), "m", "x", v1::MODEL_FILE_STATE_TRUNCATED);
  Add(Node('b'), "m", "x", v1::MODEL_FILE_STATE_TRUNCATED);
  Add(Node('c'), "m", "y");
  EXPECT_FALSE(Judge());
  EXPECT_EQ(File(2).state(), v1::MODEL_FILE_STATE_READ);
  EXPECT_EQ(File(0).state(), v1::MODEL_FILE_STATE_TRUNCATED);
}

TEST_F(ModelIntegrityTest, AFileThatOthersHaveIsMissing) {
  v1::NodeModelFiles& whole = Node('a');
  Add(whole, "b.json", "x");
  Add(whole, "a.json", "x");
  Add(Node('b'), "b.json", "x");
  *Node('c').mutable_failure() = MakeReason("MODEL_NOT_FOUND", "no model 'm' on this node");
  EXPECT_FALSE(Judge());
  ASSERT_EQ(verification_.nodes(1).files_size(), 2);
  EXPECT_EQ(File(1, 0).name(), "a.json");
  EXPECT_EQ(File(1, 0).state(), v1::MODEL_FILE_STATE_MISSING);
  EXPECT_TRUE(verification_.nodes(2).files().empty()) << "it has no such model";
}

TEST_F(ModelIntegrityTest, NodesWithoutTheModelAreNoFaultOthersThatCantBeAskedAre) {
  Add(Node('a'), "m", "x");
  *Node('b').mutable_failure() = MakeReason("MODEL_NOT_FOUND", "no model 'm' on this node");
  EXPECT_TRUE(Judge());
  *Node('c').mutable_failure() = MakeReason("ENTRY_UNREACHABLE", "no answer");
  EXPECT_FALSE(Judge());
}

TEST_F(ModelIntegrityTest, AModelThatNobodyHasOrThatCantBeLoadedDoesNotPass) {
  *Node('a').mutable_failure() = MakeReason("MODEL_NOT_FOUND", "no model 'm' on this node");
  EXPECT_FALSE(Judge());
  v1::NodeModelFiles& broken = Node('b');
  Add(broken, "m", "x");
  EXPECT_TRUE(Judge());
  *verification_.mutable_nodes(1)->mutable_broken() = MakeReason("MODEL_FILE_BROKEN", "cut short");
  EXPECT_FALSE(Judge());
}

}  // namespace
}  // namespace macrame::agentd
