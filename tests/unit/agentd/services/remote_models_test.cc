#include "agentd/services/remote_models.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "proto/reasons.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::agentd {
namespace {

class RemoteModelsTest : public ::testing::Test {
 protected:
  RemoteModelsTest() {
    v1::LocalModel& model = *inventory_.add_models();
    model.set_name("org/knot");
    model.set_path("/srv/models/org/knot");
    NodeFacts silent;
    NodeFacts has_it;
    has_it.inventory = &inventory_;
    nodes_ = {silent, has_it};
  }

  absl::StatusOr<std::string> Named(const std::string& text) {
    return ModelNameFrom(remote_, text, nodes_);
  }

  v1::Inventory inventory_;
  std::vector<NodeFacts> nodes_;
  const transport::Caller remote_{NodeId(), /*local=*/false, "10.0.0.9", "0123456789ab"};
};

TEST_F(RemoteModelsTest, NamesStayAndKnownPathsBecomeNames) {
  for (const char* name : {"org/knot", "knot", "no-such-model", "a/../b", "models/x", ".hidden"}) {
    EXPECT_EQ(*Named(name), name);
  }
  for (const char* path : {"/srv/models/org/knot", "/srv/models/org/knot/", "/srv//models/org/knot",
                           "/srv/models/../models/org/./knot"}) {
    EXPECT_EQ(*Named(path), "org/knot") << path;
  }
}

TEST_F(RemoteModelsTest, OfAllOtherPathsThereIsOneAnswer) {
  const std::string folder = FreshFolder();
  std::filesystem::create_directory(folder + "/model");
  std::ofstream(folder + "/model/config.json") << R"({"model_type": "llama"})";
  std::ofstream(folder + "/file") << "x";
  const absl::Status answer = Named("/no/such/folder").status();
  EXPECT_EQ(ReasonOf(answer).code(), reasons::kModelNotFound);
  EXPECT_FALSE(ReasonOf(answer).remedy().empty());
  for (const std::string& path :
       {folder, folder + "/model", folder + "/file", folder + "/model/config.json",
        std::string("/"), std::string("/root"), std::string("/srv/models"),
        std::string("/srv/models/org"), std::string("/srv/models/org/knot/.."), std::string("."),
        std::string(".."), std::string("./knot"), std::string("../knot"), std::string("~/knot")}) {
    EXPECT_EQ(Named(path).status(), answer) << path;
    EXPECT_EQ(ReasonOf(Named(path).status()).message(), ReasonOf(answer).message()) << path;
  }
}

TEST_F(RemoteModelsTest, ThisMachinesUserAndMembersNameModelsAsTheyLike) {
  EXPECT_EQ(*ModelNameFrom({NodeId(), /*local=*/true, ""}, "/etc/x", nodes_), "/etc/x");
  EXPECT_EQ(
      *ModelNameFrom({NodeId(std::string(32, 'a')), /*local=*/false, "10.0.0.2"}, "/etc/x", nodes_),
      "/etc/x");
}

}  // namespace
}  // namespace macrame::agentd
