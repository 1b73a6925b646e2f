// Model files that several nodes read: this one from a real folder, the others as the test plays
// them.

#include "agentd/services/verify_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/cores/gang_reconciler.h"
#include "proto/reasons.h"
#include "runtime/second_engine/mlx_lm.h"
#include "tests/unit/agentd/fake_server.h"
#include "tests/unit/agentd/lone_node.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using tests::IdOf;

// Models are the folders below one.
class PlainLibrary final : public ModelLibrary {
 public:
  explicit PlainLibrary(std::string folder) : folder_(std::move(folder)) {}
  void Start(Duration, std::function<void(std::vector<v1::LocalModel>)>) override {}
  void Stop() override {}
  void ExpectSecondEngine() override {}
  void SetSecondEngine(runtime::SecondEngine) override {}
  void Resolve(const std::string&, Described) override {}
  void Find(const v1::ModelDescription&, Described) override {}
  void Locate(const std::string& name, Located done) override {
    located.push_back(name);
    const std::string path = folder_ + "/" + name;
    if (!std::filesystem::is_directory(path)) {
      return done(ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotFound,
                               absl::StrCat("no folder has ", name)));
    }
    done(LocatedModel{name, path, broken_reason});
  }
  const std::vector<v1::Reason>& broken() const override { return broken_; }

  std::vector<std::string> located;
  v1::Reason broken_reason;

 private:
  const std::string folder_;
  const std::vector<v1::Reason> broken_;
};

class VerifyServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = FreshFolder();
    Write("m/config.json", "{}");
    Write("m/tokenizer.json", std::string(5000, 'w'));
    library_.emplace(folder_);
    service_.emplace(VerifyService::Parts{node_.dispatcher, node_.channels, node_.members,
                                          *library_, node_.replicator, node_.self});
    service_->RegisterCluster(server_);
    service_->RegisterAgent(server_);
  }
  void TearDown() override { service_.reset(); }

  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  void Meet(std::string_view nodes) {
    for (const char node : nodes) {
      node_.members.HeardMember(tests::IdentityOf(IdOf(node)), "", true);
    }
  }
  using Heard = std::shared_ptr<tests::Heard<v1::ModelVerification>>;
  Heard Verify(const std::string& model, std::string_view nodes = "") {
    v1::VerifyModelRequest request;
    request.set_name_or_path(model);
    for (const char node : nodes) request.add_node_ids(IdOf(node).value());
    return server_.Call({NodeId(), true, ""}, kVerifyModel, request);
  }
  // Until the thread that reads has told all.
  bool RunUntil(const std::function<bool()>& is_so) {
    const auto limit = std::chrono::steady_clock::now() + seconds(20);
    while (!is_so() && std::chrono::steady_clock::now() < limit) {
      if (node_.dispatcher.RunPosted() == 0) std::this_thread::sleep_for(milliseconds(1));
    }
    return is_so();
  }
  void RunToEnd(const Heard& heard) {
    ASSERT_TRUE(RunUntil([&] { return heard->end.has_value(); }));
  }
  static const v1::NodeModelFiles* Of(const v1::ModelVerification& told, const NodeId& node) {
    for (const v1::NodeModelFiles& files : told.nodes()) {
      if (files.node_id() == node.value()) return &files;
    }
    return nullptr;
  }
  // The same files as this node has.
  v1::NodeModelFiles SameFiles(const v1::NodeModelFiles& own) const {
    v1::NodeModelFiles files = own;
    files.clear_node_id();
    files.set_path("/elsewhere/m");
    return files;
  }

  tests::LoneNode node_;
  std::string folder_;
  std::optional<PlainLibrary> library_;
  tests::FakeServer server_;
  std::optional<VerifyService> service_;
};

TEST_F(VerifyServiceTest, OwnFilesAreReadWholeAndToldInTheLastMessageAlone) {
  const Heard heard = Verify("m");
  RunToEnd(heard);
  EXPECT_TRUE(heard->end->ok());
  ASSERT_THAT(heard->messages, Not(IsEmpty()));
  for (size_t at = 0; at + 1 < heard->messages.size(); ++at) {
    EXPECT_FALSE(heard->messages[at].finished());
    for (const auto& node : heard->messages[at].nodes()) EXPECT_THAT(node.files(), IsEmpty());
  }
  const v1::ModelVerification& told = heard->messages.back();
  EXPECT_TRUE(told.finished());
  EXPECT_TRUE(told.passed()) << told.DebugString();
  ASSERT_THAT(told.nodes(), SizeIs(1));
  ASSERT_THAT(told.nodes(0).files(), SizeIs(2));
  EXPECT_EQ(told.nodes(0).files(0).name(), "config.json");
  EXPECT_EQ(told.nodes(0).files(1).bytes(), 5000u);
  EXPECT_THAT(told.nodes(0).files(1).sha256(), SizeIs(64));
}

TEST_F(VerifyServiceTest, AModelThatNobodyHasPassesNothing) {
  const Heard heard = Verify("other");
  RunToEnd(heard);
  const v1::ModelVerification& told = heard->messages.back();
  EXPECT_TRUE(told.finished());
  EXPECT_FALSE(told.passed());
  EXPECT_EQ(told.nodes(0).failure().code(), reasons::kModelNotFound);
}

TEST_F(VerifyServiceTest, NodesAreComparedAndTheOneThatDiffersIsNamed) {
  const Heard alone = Verify("m");
  RunToEnd(alone);
  const v1::NodeModelFiles own = alone->messages.back().nodes(0);
  Meet("bc");
  const Heard heard = Verify("m");
  ASSERT_THAT(node_.peers.Open(), SizeIs(2));
  v1::NodeModelFiles altered = SameFiles(own);
  altered.mutable_files(1)->set_sha256(std::string(64, '0'));
  for (const auto& call : node_.peers.Open()) {
    EXPECT_EQ(call->As<v1::VerifyFilesRequest>().name_or_path(), "m");
    call->Send(call->node == IdOf('b') ? altered : SameFiles(own));
    call->End(absl::OkStatus());
  }
  RunToEnd(heard);
  const v1::ModelVerification& told = heard->messages.back();
  EXPECT_FALSE(told.passed());
  ASSERT_THAT(told.nodes(), SizeIs(3));
  const v1::NodeModelFiles* wrong = Of(told, IdOf('b'));
  ASSERT_NE(wrong, nullptr);
  EXPECT_EQ(wrong->files(1).state(), v1::MODEL_FILE_STATE_ALTERED) << told.DebugString();
  EXPECT_NE(wrong->files(1).note(), "");
  EXPECT_NE(Of(told, IdOf('c'))->files(1).state(), v1::MODEL_FILE_STATE_ALTERED);
}

TEST_F(VerifyServiceTest, ProgressOfEachNodeIsShownWhileOthersRead) {
  Meet("b");
  const Heard heard = Verify("m", "b");
  v1::NodeModelFiles progress;
  progress.set_node_id(IdOf('f').value());  // what a node says of its id counts for nothing
  progress.set_bytes_read(10);
  progress.set_bytes_total(100);
  node_.peers.last().Send(progress);
  ASSERT_THAT(heard->messages, SizeIs(1));
  EXPECT_EQ(heard->messages[0].nodes(0).bytes_read(), 10u);
  EXPECT_EQ(heard->messages[0].nodes(0).node_id(), IdOf('b').value());
  EXPECT_FALSE(heard->end.has_value());
  node_.peers.last().End(absl::UnavailableError("its disk died"));
  ASSERT_TRUE(heard->end.has_value());
  const v1::ModelVerification& told = heard->messages.back();
  EXPECT_FALSE(told.passed());
  EXPECT_THAT(told.nodes(0).failure().message(), HasSubstr("its disk died"));
}

// What was told before the end of a reading that failed is no list of files.
TEST_F(VerifyServiceTest, AReadingThatFailsInTheMiddleLeavesNoFiles) {
  Meet("b");
  const Heard heard = Verify("m", "b");
  v1::NodeModelFiles half;
  half.add_files()->set_name("config.json");
  node_.peers.last().Send(half);
  node_.peers.last().End(absl::DeadlineExceededError("too slow"));
  EXPECT_THAT(heard->messages.back().nodes(0).files(), IsEmpty());
  EXPECT_NE(heard->messages.back().nodes(0).failure().code(), "");
  EXPECT_FALSE(heard->messages.back().passed());
}

TEST_F(VerifyServiceTest, ANodeThatIsForgottenMeanwhileEndsWithItsName) {
  Meet("bc");
  const Heard heard = Verify("m", "bc");
  node_.channels.Forget(IdOf('b'));
  EXPECT_FALSE(heard->end.has_value());
  node_.channels.Forget(IdOf('c'));
  ASSERT_TRUE(heard->end.has_value());
  for (const v1::NodeModelFiles& files : heard->messages.back().nodes()) {
    EXPECT_EQ(files.failure().code(), reasons::kEntryUnreachable);
    EXPECT_EQ(files.failure().node_id(), files.node_id());
  }
  node_.channels.Forget(IdOf('c'));
  EXPECT_EQ(heard->messages.size(), 1u) << "the end comes once";
}

TEST_F(VerifyServiceTest, WhoCantBeCalledIsNamedAndTheOthersRead) {
  Meet("b");
  node_.channels.SetRevoked({IdOf('b')});
  const Heard heard = Verify("m");
  RunToEnd(heard);
  const v1::ModelVerification& told = heard->messages.back();
  EXPECT_EQ(Of(told, IdOf('b'))->failure().code(), reasons::kEntryUnreachable);
  EXPECT_THAT(Of(told, node_.self)->files(), SizeIs(2));
  EXPECT_FALSE(told.passed());
}

TEST_F(VerifyServiceTest, ANodeThatIsNamedTwiceIsAskedOnce) {
  Meet("bc");
  const Heard heard = Verify("m", "bb");
  ASSERT_THAT(node_.peers.calls(), SizeIs(1));
  node_.peers.last().End(absl::OkStatus());
  ASSERT_TRUE(heard->end.has_value());
  EXPECT_THAT(heard->messages.back().nodes(), SizeIs(1));
}

TEST_F(VerifyServiceTest, WhoGoesAwayEndsTheReadingEverywhere) {
  Meet("bc");
  const Heard heard = Verify("m", "bc");
  heard->Leave();
  for (const auto& call : node_.peers.calls()) {
    EXPECT_TRUE(call->cancelled);
    call->End(absl::CancelledError("as asked"));
  }
  EXPECT_THAT(heard->messages, IsEmpty());
}

TEST_F(VerifyServiceTest, ACallerThatReadsNoMoreEndsTheReading) {
  Meet("b");
  const Heard heard = Verify("m", "b");
  heard->gone = true;
  node_.peers.last().Send(v1::NodeModelFiles());
  EXPECT_TRUE(node_.peers.last().cancelled);
}

TEST_F(VerifyServiceTest, WhatIsLoadedUnderANameOfItsOwnIsReadAsItsModel) {
  node_.Pass(seconds(8));
  ASSERT_TRUE(node_.Leads());
  v1::Deployment deployment;
  deployment.set_name("chat");
  deployment.set_model_name("m");
  deployment.set_replicas(2);
  node_.replicator.Write(DeploymentKey("chat"), deployment.SerializeAsString(),
                         [](const absl::Status&) {});
  for (const std::string name : {"chat", "chat#2", "m"}) {
    const Heard heard = Verify(name);
    RunToEnd(heard);
    EXPECT_TRUE(heard->messages.back().passed()) << name;
  }
  EXPECT_THAT(library_->located, ElementsAre("m", "m", "m"));
}

// --- between agents ------------------------------------------------------------------------------

TEST_F(VerifyServiceTest, ForAnotherNodeOwnFilesAreReadAndWhyTheyCantBeLoadedIsSaid) {
  library_->broken_reason = MakeReason(reasons::kModelFileBroken, "its header is damaged");
  v1::VerifyFilesRequest request;
  request.set_name_or_path("m");
  const auto heard = server_.Call({IdOf('b'), false, "10.0.0.1"}, kVerifyFiles, request);
  ASSERT_TRUE(RunUntil([&] { return heard->end.has_value(); }));
  EXPECT_TRUE(heard->end->ok());
  EXPECT_THAT(heard->messages.back().files(), SizeIs(2));
  EXPECT_EQ(heard->messages.back().broken().code(), reasons::kModelFileBroken);
  request.set_name_or_path("other");
  const auto none = server_.Call({IdOf('b'), false, "10.0.0.1"}, kVerifyFiles, request);
  ASSERT_TRUE(none->end.has_value());
  EXPECT_EQ(ReasonOf(*none->end).code(), reasons::kModelNotFound);
}

TEST_F(VerifyServiceTest, OneThatGoesAwayBeforeItsTurnIsEndedWithoutReading) {
  Write("big/a.json", std::string(8 << 20, 'a'));
  v1::VerifyFilesRequest request;
  request.set_name_or_path("big");
  const auto first = server_.Call({IdOf('b'), false, ""}, kVerifyFiles, request);
  const auto second = server_.Call({IdOf('c'), false, ""}, kVerifyFiles, request);
  second->Leave();
  ASSERT_TRUE(RunUntil([&] { return first->end.has_value() && second->end.has_value(); }));
  EXPECT_TRUE(first->end->ok());
  EXPECT_TRUE(absl::IsCancelled(*second->end)) << *second->end;
  EXPECT_THAT(second->messages, IsEmpty());
}

}  // namespace
}  // namespace macrame::agentd
