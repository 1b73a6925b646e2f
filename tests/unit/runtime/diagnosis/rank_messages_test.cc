#include "runtime/diagnosis/rank_messages.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace macrame::runtime {
namespace {

std::string CodeOf(const std::string& text) {
  const auto found = RecogniseMessage(text);
  return found.has_value() ? found->reason.code() : "";
}

TEST(RankMessages, TellsWhatTheNumberAdds) {
  EXPECT_EQ(CodeOf("RuntimeError: [jaccl] Couldn't connect (error: 60)"), "COORDINATOR");
  EXPECT_EQ(CodeOf("RuntimeError: [jaccl] Couldn't connect (error: 65)"), "LOCAL_NETWORK_PRIVACY");
  EXPECT_EQ(CodeOf("[ring] Couldn't bind socket (error: 49)"), "NO_IPV4");
  EXPECT_EQ(CodeOf("[ring] Couldn't connect (error: 51)"), "ROUTE_WRONG_IF");
  EXPECT_EQ(CodeOf("ValueError: [jaccl] Changing queue pair to RTR failed with errno 16"),
            "RESOURCE_EXHAUSTED");
  EXPECT_EQ(CodeOf("ValueError: [jaccl] Changing queue pair to RTR failed with errno 96"),
            "GID_INDEX_SHIFTED");
  EXPECT_EQ(CodeOf("[jaccl] Could not find device rdma_en9 (0 available)"), "NO_RDMA_DEVICE");
  EXPECT_EQ(CodeOf("[jaccl] Could not find device rdma_en9 (3 available)"), "MATRIX_WRONG");
}

TEST(RankMessages, ColoursDoNotHideAMessage) {
  EXPECT_EQ(CodeOf("\x1b[31m[ERROR] Incomplete mesh, a is not connected to b \x1b[0m"),
            "MESH_INCOMPLETE");
  const auto found = RecogniseMessage("\x1b[33m[WARN] Node with rank 1 exited with code 1 \x1b[0m");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->reason.evidence(), "[WARN] Node with rank 1 exited with code 1");
}

TEST(RankMessages, SomethingElseIsNotRecognised) {
  EXPECT_FALSE(RecogniseMessage("loading weights").has_value());
  EXPECT_FALSE(RecogniseMessage("").has_value());
  EXPECT_FALSE(RecogniseMessage(std::string(100000, '\x1b')).has_value());
}

TEST(RankMessages, ACauseOutweighsWhatFollowedFromIt) {
  const auto words = RecogniseLastLines(
      "[jaccl] Connection attempt 0 waiting 1000 ms\n"
      "[jaccl] Recv failed with errno=2\n"
      "[jaccl] No IPv4-mapped GID for this device. Thunderbolt\n"
      "[WARN] Node with rank 0 was killed\n");
  ASSERT_TRUE(words.has_value());
  EXPECT_EQ(words->reason.code(), "NO_IPV4_GID");
  EXPECT_FALSE(words->is_symptom);
}

TEST(RankMessages, TheRankThatFailedFirstIsNamed) {
  const auto gang = RecogniseGang({{0, "[jaccl] Recv failed with errno=2"},
                                   {1, "[jaccl] Couldn't allocate protection domain"},
                                   {2, "[jaccl] Recv failed with errno=2"}});
  ASSERT_TRUE(gang.has_value());
  EXPECT_EQ(gang->first, 1);
  EXPECT_TRUE(gang->second.is_symptom) << "a probe may know more";
}

// Every entry of a list of messages laid out as: sections of {id, message|messages, reason: A|B}.
std::string Filled(std::string message) {
  static const std::map<std::string, std::string> samples = {
      {"<ERRNO>", "22"},
      {"<DLERROR TEXT>", "dlsym(0x1, ibv_open_device): symbol not found"},
      {"<IP>", "10.0.0.1"},
      {"<PORT>", "32323"}};
  for (const auto& [hole, sample] : samples) {
    for (size_t at = message.find(hole); at != std::string::npos; at = message.find(hole)) {
      message.replace(at, hole.size(), sample);
    }
  }
  return std::regex_replace(message, std::regex("<[A-Z0-9_ ]+>"), "7");
}

std::set<std::string> Alternatives(const std::string& reasons) {
  std::set<std::string> list;
  std::stringstream parts(reasons);
  for (std::string part; std::getline(parts, part, '|');) list.insert(part);
  return list;
}

std::vector<std::string> MessagesOf(const YAML::Node& entry) {
  std::vector<std::string> messages;
  for (const char* key : {"message", "older_message"}) {
    if (entry[key]) messages.push_back(entry[key].as<std::string>());
  }
  for (const YAML::Node& message : entry["messages"]) messages.push_back(message.as<std::string>());
  return messages;
}

TEST(RankMessages, KnowsEveryMessageOfFurtherCaptures) {
  const char* folder = std::getenv("MACRAME_EXTRA_CAPTURES");
  const std::string path = folder == nullptr ? "" : std::string(folder) + "/mlx/errors.yaml";
  if (path.empty() || !std::filesystem::exists(path)) {
    GTEST_SKIP() << "MACRAME_EXTRA_CAPTURES names no such folder";
  }
  // One text may be thrown in two places, for two reasons: nothing tells which.
  std::map<std::string, std::set<std::string>> wanted;
  for (const auto& section : YAML::LoadFile(path)) {
    if (!section.second.IsSequence()) continue;
    for (const YAML::Node& entry : section.second) {
      for (const std::string& message : MessagesOf(entry)) {
        wanted[Filled(message)].merge(Alternatives(entry["reason"].as<std::string>()));
      }
    }
  }
  for (const auto& [message, reasons] : wanted) {
    EXPECT_TRUE(reasons.contains(CodeOf(message)))
        << message << "\n  gives '" << CodeOf(message) << "' instead of " << *reasons.begin();
  }
  EXPECT_GT(wanted.size(), 50u);
}

}  // namespace
}  // namespace macrame::runtime
