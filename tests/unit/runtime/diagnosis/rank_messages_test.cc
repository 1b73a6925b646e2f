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
#include <tuple>

#include "proto/utf8.h"

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

// What each is about, and words of its next step.
TEST(RankMessages, WhatTheGpuSaysHasAReasonAndANextStep) {
  const std::tuple<const char*, const char*, const char*> said[] = {
      {"libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] "
       "Command buffer execution failed: Caused GPU Timeout Error "
       "(00000002:kIOGPUCommandBufferCallbackErrorTimeout).",
       "RANK_STALLED", "metal_fast_synch: off"},
      {"[METAL] Command buffer execution failed: Insufficient Memory "
       "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
       "MEMORY_SHORT", "smaller context"},
      {"RuntimeError: [metal::malloc] Attempting to allocate 34359738368 bytes which is greater "
       "than the maximum allowed buffer size of 22906503168 bytes.",
       "MEMORY_SHORT", "smaller context"},
      {"RuntimeError: [metal::malloc] Resource limit (499000) exceeded.", "MEMORY_SHORT",
       "fewer sequences"},
      {"[METAL] Command buffer execution failed: Caused GPU Hang Error "
       "(00000003:kIOGPUCommandBufferCallbackErrorHang)",
       "RANK_STALLED", "restart that machine"},
      {"[METAL] Command buffer execution failed: Discarded (victim of GPU error/recovery) "
       "(00000005:kIOGPUCommandBufferCallbackErrorInnocentVictim)",
       "RANK_STALLED", "another program"},
      {"libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] "
       "Command buffer execution failed: Ignored (for causing prior/excessive GPU errors) "
       "(00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)",
       "RANK_STALLED", "only a new process is heard"},
      {"Execution of the command buffer was aborted due to an error during execution. Ignored "
       "(for causing prior/excessive GPU errors)",
       "RANK_STALLED", "else restart that machine"},
      {"RuntimeError: Failed to load the metallib mlx.metallib. This library is using language "
       "version 4.0 which is not supported on this OS.",
       "MLX_BUILD", "update macOS"},
      {"[metal::Device] Unable to load kernel affine_qmm_t_nax_bfloat16", "MLX_BUILD",
       "update macOS"},
      {"7   libmlx.dylib  0x0000000104  mlx::core::Fence::wait(mlx::core::Stream, "
       "mlx::core::array const&) + 212",
       "RANK_STALLED", "metal_fast_synch: off"},
      {"ValueError: [jaccl] Changing queue pair to RTR failed with errno 60", "ROUTE_WRONG_IF",
       "net plan"},
      {"0   libmlx.dylib  0x0000000104  tbt_post_recv + 84", "PEER_LOST", "which rank ended first"},
  };
  for (const auto& [line, code, step] : said) {
    const auto found = RecogniseMessage(line);
    ASSERT_TRUE(found.has_value()) << line;
    EXPECT_EQ(found->reason.code(), code) << line;
    EXPECT_NE(found->reason.remedy().find(step), std::string::npos) << line << "\n"
                                                                    << found->reason.remedy();
    EXPECT_FALSE(found->reason.message().empty());
  }
}

// Ignored commands are of a GPU that failed before: the first failure says more.
TEST(RankMessages, WhatMacOsIgnoresIsAFaultOfTheGpuThatFollowsFromAnEarlierOne) {
  const std::string timeout =
      "[METAL] Command buffer execution failed: Caused GPU Timeout Error "
      "(00000002:kIOGPUCommandBufferCallbackErrorTimeout)";
  const std::string ignored =
      "[METAL] Command buffer execution failed: Ignored (for causing prior/excessive GPU errors) "
      "(00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)";
  const auto alone = RecogniseLastLines(ignored + "\n" + ignored);
  ASSERT_TRUE(alone.has_value());
  EXPECT_EQ(alone->phase, kGpuFaultPhase) << "no link is refused for it";
  EXPECT_TRUE(alone->is_symptom);
  const auto after = RecogniseLastLines(ignored + "\n" + timeout + "\n" + ignored);
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(after->reason.evidence(), timeout);
}

// A crash report gives the address first; where it crashed says more.
TEST(RankMessages, ACrashWhileReceivingIsNotAMissingDevice) {
  const auto found = RecogniseLastLines(
      "Exception Type:  EXC_BAD_ACCESS (SIGSEGV)\n"
      "Exception Codes: KERN_INVALID_ADDRESS at 0x0000000000000000\n"
      "Thread 3 Crashed:\n0   libRDMA.dylib  0x19f  tbt_post_recv + 84\n");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->reason.code(), "PEER_LOST");
}

std::string MessageOf(const std::string& text) {
  const auto found = RecogniseMessage(text);
  return found.has_value() ? found->reason.message() : "";
}

// How many devices there are is no number of an error.
TEST(RankMessages, OnlyANumberOfAnErrorIsExplained) {
  for (const char* count : {"0", "2", "16", "22", "48", "60"}) {
    const std::string message =
        MessageOf(std::string("[jaccl] Could not find device rdma_en9 (") + count + " available)");
    EXPECT_EQ(message, "the device matrix names a device that this machine does not have");
  }
  EXPECT_EQ(MessageOf("[jaccl] Recv failed with errno=2"),
            "receiving from a peer failed (errno 2: another rank failed before)");
  EXPECT_EQ(MessageOf("[ring] Couldn't connect, 'Connection refused (61)'"),
            "the next rank can't be reached (errno 61: nobody listens there)");
  EXPECT_EQ(MessageOf("[ring] Couldn't bind socket (error: 48)"),
            "the next rank can't be reached (errno 48: the address is in use)");
  EXPECT_EQ(MessageOf("[ring] Couldn't listen (error: 99999999999999999999)"),
            "the next rank can't be reached");
}

TEST(RankMessages, AGroupOfOneIsNotAGroupOfSixteen) {
  EXPECT_EQ(CodeOf("came up as rank 0 of 1 instead of 0 of 2"), "GROUP_MISMATCH");
  EXPECT_EQ(CodeOf("this is rank 0 of 1"), "GROUP_MISMATCH");
  EXPECT_EQ(CodeOf("launch spec: rank 0 of 16 with tp 3 and pp 5"), "");
  EXPECT_EQ(CodeOf("rank 0 of 12 loads its slice"), "");
}

// It goes into messages, which hold UTF-8 alone, and is cut where a character begins.
TEST(RankMessages, EvidenceIsUtf8AndBounded) {
  for (size_t before = 0; before < 8; ++before) {
    std::string line = "[ring] Couldn't connect " + std::string(before, '.');
    while (line.size() < 600) line += "機械";
    const auto found = RecogniseMessage(line);
    ASSERT_TRUE(found.has_value());
    const std::string& evidence = found->reason.evidence();
    EXPECT_LE(evidence.size(), 300u);
    EXPECT_GT(evidence.size(), 296u);
    EXPECT_EQ(FirstNonUtf8(evidence), evidence.size());
  }
  const auto latin = RecogniseMessage("[ring] Couldn't connect to B\xfcro\n");
  ASSERT_TRUE(latin.has_value());
  EXPECT_EQ(latin->reason.evidence(), "[ring] Couldn't connect to B?ro");
  v1::Reason read;
  EXPECT_TRUE(read.ParseFromString(latin->reason.SerializeAsString()));
}

TEST(RankMessages, EveryRecognisedLineHasAMeaningACodeAndAPhase) {
  const std::set<std::string> phases = {"spawn",   "rendezvous", "queue_pair", "first_collective",
                                        "weights", "run"};
  for (const char* line :
       {"[jaccl] Couldn't allocate protection domain", "[jaccl] Could not open device rdma_en2",
        "[jaccl] Changing queue pair to INIT failed with errno 22",
        "[jaccl] Couldn't bind socket (error: 48)", "[ring] Attempt 3 waiting 1000 ms",
        "Couldn't initialize any backend", "Malformed hostfile (line 2)",
        "[jaccl] dlopen(librdma.dylib): no such file", "Can't parse address 10.0.0.300:1"}) {
    const auto found = RecogniseMessage(line);
    ASSERT_TRUE(found.has_value()) << line;
    EXPECT_FALSE(found->reason.message().empty()) << line;
    EXPECT_EQ(found->reason.evidence(), line);
    EXPECT_TRUE(phases.contains(found->phase)) << line << ": " << found->phase;
  }
}

TEST(RankMessages, WaitingIsNoFailureAndTheFirstOfEqualsCounts) {
  const auto waits =
      RecogniseLastLines("[ring] Attempt 1 waiting\n[ring] Sending to socket failed");
  ASSERT_TRUE(waits.has_value());
  EXPECT_EQ(waits->reason.evidence(), "[ring] Sending to socket failed");
  const auto two = RecogniseLastLines("Couldn't create queue pair\nNo IPv4-mapped GID\n");
  ASSERT_TRUE(two.has_value());
  EXPECT_EQ(two->reason.code(), "RESOURCE_EXHAUSTED");
  EXPECT_FALSE(RecogniseGang({}).has_value());
  EXPECT_FALSE(RecogniseGang({{0, "loading"}, {1, ""}}).has_value());
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
