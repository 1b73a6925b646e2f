#include "agentd/node/folder_model_library.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "macrame/v1/planner.pb.h"
#include "runtime/second_engine/mlx_lm.h"
#include "tests/support/fake_dispatcher.h"
#include "tests/unit/fresh_folder.h"
#include "transport/worker_thread.h"

namespace macrame::agentd {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr seconds kLimit{60};

// Folders of models, and a program in rankd's place that waits while there is a file "hold" and
// writes down what it was told of the second engine.
class FolderModelLibraryTest : public ::testing::Test {
 protected:
  FolderModelLibraryTest() : root_(FreshFolder()) {
    v1::ModelFolderAnswer answer;
    answer.mutable_model()->set_architecture("llama");
    answer.mutable_model()->set_fingerprint("f");
    std::ofstream(root_ + "/answer", std::ios::binary) << answer.SerializeAsString();
    std::ofstream(rankd()) << "#!/bin/sh\necho \"$4\" >> " << root_ << "/second\nwhile [ -e "
                           << root_ << "/hold ]; do sleep 0.01; done\ncat " << root_ << "/answer\n";
    fs::permissions(rankd(), fs::perms::owner_all);
    AddModel("a");
  }

  std::string rankd() const { return root_ + "/rankd"; }
  std::string hold() const { return root_ + "/hold"; }
  void AddModel(const std::string& name) const {
    const std::string folder = absl::StrCat(root_, "/models/", name);
    fs::create_directories(folder);
    std::ofstream(folder + "/config.json") << "{}";
  }
  std::string SecondsTold() const {
    std::ifstream file(root_ + "/second");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // The worker's time is real; the owner's passes where `step` lets it.
  template <typename Holds>
  bool WaitFor(const Holds& holds, Duration step = {}) {
    const auto end = steady_clock::now() + kLimit;
    while (!holds() && steady_clock::now() < end) {
      dispatcher_.AdvanceBy(step);
      std::this_thread::sleep_for(milliseconds(1));
    }
    return holds();
  }

  std::string root_;
  transport::FakeDispatcher dispatcher_;
  std::vector<std::string> names_;
};

// 1,024 questions wait behind a slow folder: what is then refused must not be the end of looking.
TEST_F(FolderModelLibraryTest, AWorkerThatIsFullIsAskedAgain) {
  FolderModelLibrary library(dispatcher_, {root_ + "/models"}, rankd());
  library.Start(seconds(1), [this](const std::vector<v1::LocalModel>& models) {
    names_.clear();
    for (const v1::LocalModel& model : models) names_.push_back(model.name());
  });
  ASSERT_TRUE(WaitFor([&] { return !names_.empty(); }));
  ASSERT_EQ(names_, std::vector<std::string>{"a"});

  std::ofstream(hold()) << "";
  AddModel("b");
  size_t answered = 0, refused = 0;
  const size_t looks_before = SecondsTold().size();
  for (size_t i = 0; i < transport::kWorkerTasksMax + 2; ++i) {
    library.Resolve("b", [&](const absl::StatusOr<DescribedModel>& described) {
      ++answered;
      refused += absl::IsResourceExhausted(described.status()) ? 1 : 0;
    });
    // The first is under way, so that it takes no place among those that wait.
    if (i == 0) {
      ASSERT_TRUE(WaitFor([&] { return SecondsTold().size() > looks_before; }));
    }
  }
  ASSERT_GT(refused, 0u) << "the worker is full";
  runtime::SecondEngine second;
  second.why_not = "it came while the worker was full";
  library.SetSecondEngine(second);
  AddModel("c");
  // The look that each second begins finds the worker full, too.
  for (int i = 0; i < 10; ++i) dispatcher_.AdvanceBy(seconds(1));
  fs::remove(hold());
  ASSERT_TRUE(WaitFor([&] { return answered == transport::kWorkerTasksMax + 2; }));
  EXPECT_TRUE(WaitFor([&] { return names_.size() == 3; }, milliseconds(100)));
  EXPECT_EQ(names_, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(WaitFor([&] { return SecondsTold().find(second.why_not) != std::string::npos; },
                      milliseconds(100)))
      << SecondsTold();
}

}  // namespace
}  // namespace macrame::agentd
