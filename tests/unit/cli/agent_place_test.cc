// Which agent is asked: by flags, by variables, by what is there.

#include "cli/agent_place.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/unit/fresh_folder.h"

namespace macrame::cli {
namespace {

using Variables = std::map<std::string, std::string>;

// A home of its own, with an access file in the usual place or without.
class AgentPlaceTest : public ::testing::Test {
 protected:
  AgentPlaceTest() : home_(FreshFolder()) {
    const char* before = std::getenv("HOME");
    if (before != nullptr) home_before_ = before;
    std::filesystem::create_directories(home_ + "/.macrame");
    setenv("HOME", home_.c_str(), 1);
  }
  ~AgentPlaceTest() override {
    if (home_before_.empty()) {
      unsetenv("HOME");
    } else {
      setenv("HOME", home_before_.c_str(), 1);
    }
  }
  std::string KeepAccessFile() {
    const std::string path = home_ + "/.macrame/cluster.access";
    std::ofstream(path) << "kept";
    return path;
  }
  absl::StatusOr<AgentPlace> Choose(const PlaceFlags& flags, const Variables& variables = {}) {
    Environment environment;
    environment.variable = [&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::string() : found->second;
    };
    return ChooseAgent(flags, environment);
  }

  const std::string home_;
  std::string home_before_;
};

struct Choice {
  const char* why;
  PlaceFlags flags;
  Variables variables;
  const char* socket;
  const char* access;
  const char* host;
};

TEST_F(AgentPlaceTest, AFlagComesBeforeAVariable) {
  const Choice choices[] = {
      {"the socket's flag", {"/f.sock", "", ""}, {}, "/f.sock", "", ""},
      {"and before all variables",
       {"/f.sock", "", ""},
       {{"MACRAME_SOCKET", "/v.sock"}, {"MACRAME_ACCESS", "/v.access"}, {"MACRAME_HOST", "v"}},
       "/f.sock",
       "",
       ""},
      {"the access file's flag", {"", "/f.access", ""}, {}, "", "/f.access", ""},
      {"before the socket's variable",
       {"", "/f.access", "ada"},
       {{"MACRAME_SOCKET", "/v.sock"}},
       "",
       "/f.access",
       "ada"},
      {"the host's flag, the file's variable",
       {"", "", "ada"},
       {{"MACRAME_ACCESS", "/v.access"}, {"MACRAME_HOST", "bob"}},
       "",
       "/v.access",
       "ada"},
      {"the access file's variable before the socket's",
       {},
       {{"MACRAME_SOCKET", "/v.sock"}, {"MACRAME_ACCESS", "/v.access"}},
       "",
       "/v.access",
       ""},
      {"the socket's variable", {}, {{"MACRAME_SOCKET", "/v.sock"}}, "/v.sock", "", ""},
  };
  for (const bool is_kept : {false, true}) {
    if (is_kept) KeepAccessFile();
    for (const Choice& choice : choices) {
      const auto place = Choose(choice.flags, choice.variables);
      ASSERT_TRUE(place.ok()) << choice.why << ": " << place.status();
      EXPECT_EQ(place->socket_path, choice.socket) << choice.why;
      EXPECT_EQ(place->access_file, choice.access) << choice.why;
      EXPECT_EQ(place->host, choice.host) << choice.why;
    }
  }
}

TEST_F(AgentPlaceTest, ThisMachineAndAnotherAtOnceIsAnError) {
  for (const PlaceFlags& flags : {PlaceFlags{"/a.sock", "/b.access", ""}, {"/a.sock", "", "ada"}}) {
    const auto place = Choose(flags);
    ASSERT_TRUE(absl::IsInvalidArgument(place.status())) << place.status();
    for (const char* flag : {"--socket", "--access", "--host"}) {
      EXPECT_NE(place.status().message().find(flag), std::string::npos) << place.status();
    }
  }
}

TEST_F(AgentPlaceTest, AHostTakesTheAccessFileInTheUsualPlaceOrSaysHowToMakeOne) {
  for (const bool by_flag : {true, false}) {
    const PlaceFlags flags = by_flag ? PlaceFlags{"", "", "ada"} : PlaceFlags{};
    const Variables variables = by_flag ? Variables{} : Variables{{"MACRAME_HOST", "ada"}};
    std::filesystem::remove(home_ + "/.macrame/cluster.access");
    const auto refused = Choose(flags, variables);
    ASSERT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
    EXPECT_NE(refused.status().message().find("clusterctl key create --access-file"),
              std::string::npos)
        << refused.status();
    const std::string kept = KeepAccessFile();
    const auto place = Choose(flags, variables);
    ASSERT_TRUE(place.ok()) << place.status();
    EXPECT_EQ(place->access_file, kept);
    EXPECT_EQ(place->host, "ada");
    EXPECT_EQ(place->socket_path, "");
  }
}

TEST_F(AgentPlaceTest, WithoutAHomeNothingIsKept) {
  KeepAccessFile();
  for (const char* home : {"", "relative/home"}) {
    setenv("HOME", home, 1);
    EXPECT_FALSE(Choose({"", "", "ada"}).ok()) << "'" << home << "'";
  }
  unsetenv("HOME");
  EXPECT_FALSE(Choose({"", "", "ada"}).ok());
}

TEST_F(AgentPlaceTest, WithoutAWordThereIsAlwaysSomebodyToAsk) {
  const auto place = Choose({});
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_NE(place->socket_path, "");
  EXPECT_EQ(place->access_file, "");
}

}  // namespace
}  // namespace macrame::cli
