#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/transport/links/link_facts_for_tests.h"
#include "transport/links/judge.h"
#include "transport/links/mlx_settings.h"

namespace macrame::transport {
namespace {

std::string FaultsOf(const std::string& text) {
  std::string all;
  for (const HostfileFault& fault : CheckHostfile(text)) {
    absl::StrAppend(&all, fault.line, ": ", fault.message, "\n");
  }
  return all;
}

TEST(Hostfile, WhatIsExportedIsGood) {
  const v1::ClusterLinks links = JudgeLinks(GoodPair());
  for (const char* backend : {"jaccl", "ring"}) {
    const auto text = MlxHostfile(links.group(), backend, {"mini-a", "mini-b"});
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(FaultsOf(*text), "") << *text;
  }
  EXPECT_FALSE(MlxHostfile(links.group(), "jaccl-ring", {"mini-a", "mini-b"}).ok());
}

TEST(Hostfile, SettingsAreThoseOfMlx) {
  const v1::ClusterLinks links = JudgeLinks(GoodPair());
  const auto environment = MlxEnvironmentOf(links.group(), "jaccl", 1, 32323);
  ASSERT_TRUE(environment.ok());
  EXPECT_EQ(environment->settings[0], (std::pair<std::string, std::string>("MLX_RANK", "1")));
  EXPECT_EQ(environment->settings[1],
            (std::pair<std::string, std::string>("MLX_JACCL_COORDINATOR", "192.0.2.1:32323")));
  EXPECT_EQ(environment->settings[2],
            (std::pair<std::string, std::string>("MLX_METAL_FAST_SYNCH", "1")));
  const auto hosts = MlxHostfile(links.group(), "jaccl", {"mini-a", "mini-b"});
  ASSERT_TRUE(hosts.ok());
  EXPECT_NE(hosts->find("\"MLX_METAL_FAST_SYNCH=1\""), std::string::npos) << *hosts;
  EXPECT_EQ(environment->files[0].second, R"([[null,"rdma_en2"],["rdma_en3",null]])");
}

TEST(Hostfile, EachFaultHasItsLine) {
  EXPECT_EQ(FaultsOf("[\n  {\"ssh\": \"a\"\n"), "3: not JSON\n");
  EXPECT_EQ(FaultsOf("[{\"ssh\": \"a\", \"ips\": [\"10.0.0.1\"]},\n {\"ips\": [\"10.0.0.2\"]}]"),
            "2: host 1 has no \"ssh\" name\n");
  EXPECT_EQ(FaultsOf("[{\"ssh\": \"a\", \"ips\": [\"0.0.0.0\"]},\n"
                     " {\"ssh\": \"b\",\n  \"ips\": [\"10.0.0.2\"]}]"),
            "1: host 0: 0.0.0.0 is no address that others could reach\n");
  EXPECT_EQ(FaultsOf("{\"backend\": \"jaccl\", \"hosts\": [\n"
                     "{\"ssh\": \"a\", \"ips\": [\"10.0.0.1\"], \"rdma\": [null, \"rdma_en2\"]},\n"
                     "{\"ssh\": \"b\", \"ips\": [],\n \"rdma\": [\"rdma_en3\"]}]}"),
            "4: host 1: \"rdma\" must have one entry for each of the 2 hosts\n");
  EXPECT_EQ(FaultsOf("{\"hosts\": [\n"
                     "{\"ssh\": \"a\", \"ips\": [\"10.0.0.1\"], \"rdma\": [\"x\", \"rdma_en2\"]},\n"
                     "{\"ssh\": \"b\", \"rdma\": [\"rdma_en3\", null]}]}"),
            "2: host 0: its own entry of \"rdma\" must be null\n");
  EXPECT_EQ(FaultsOf("{\"backend\": \"jaccl\", \"hosts\": [\n"
                     "{\"ssh\": \"a\", \"ips\": [], \"rdma\": [null, \"rdma_en2\"]},\n"
                     "{\"ssh\": \"b\", \"rdma\": [\"rdma_en3\", null]}]}"),
            "2: host 0 has no address: rank 0 needs one that every other host reaches\n");
  EXPECT_EQ(FaultsOf("{\"backend\": \"carrier pigeon\", \"hosts\": [{\"ssh\": \"a\", \"ips\": "
                     "[\"10.0.0.1\"]}]}"),
            "1: \"backend\" must be ring, jaccl, jaccl-ring, mpi or nccl\n");
}

// Hosts "a", "b", … with these rows of "rdma".
std::string RingFile(const std::string& backend, const std::vector<std::string>& rows) {
  std::string text = absl::StrCat("{\"backend\": \"", backend, "\", \"hosts\": [");
  for (size_t i = 0; i < rows.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "\n" : ",\n", "{\"ssh\": \"",
                    std::string(1, static_cast<char>('a' + i)), "\", \"ips\": [\"10.0.0.", i + 1,
                    "\"], \"rdma\": [", rows[i], "]}");
  }
  return absl::StrCat(text, "]}\n");
}

TEST(Hostfile, ARingHasAsManyDevicesTowardsEveryNeighbour) {
  const std::string two = R"(["x", "y"])", one = R"("x")", none = "null";
  const auto row = [](const std::string& a, const std::string& b, const std::string& c,
                      const std::string& d) { return absl::StrCat(a, ", ", b, ", ", c, ", ", d); };
  const std::vector<std::string> even = {row(none, two, none, two), row(two, none, two, none),
                                         row(none, two, none, two), row(two, none, two, none)};
  EXPECT_EQ(FaultsOf(RingFile("jaccl-ring", even)), "");
  const std::vector<std::string> doubled = {row(none, two, none, one), row(two, none, one, none),
                                            row(none, one, none, one), row(one, none, one, none)};
  const char* faults =
      "2: host 0 names 2 devices towards host 1, host 1 only 1 towards host 2: MLX's ring needs "
      "the "
      "same number everywhere; name 1\n"
      "3: host 1 names 2 devices towards host 0, host 1 only 1 towards host 2: MLX's ring needs "
      "the "
      "same number everywhere; name 1\n";
  EXPECT_EQ(FaultsOf(RingFile("jaccl-ring", doubled)), faults);
  EXPECT_EQ(FaultsOf(RingFile("", doubled)), faults) << "no mesh: it can only be meant as a ring";
  // Where all are joined, MLX would take the mesh instead, without a word.
  EXPECT_EQ(FaultsOf(RingFile("jaccl-ring", {"null, [\"x\", \"y\"], \"z\"",
                                             "[\"x\", \"y\"], null, \"z\"", "\"x\", \"y\", null"})),
            "2: host 0 names 2 devices towards host 1, host 1 only 1 towards host 2: MLX's ring "
            "needs the same number everywhere; name 1\n"
            "3: host 1 names 2 devices towards host 0, host 1 only 1 towards host 2: MLX's ring "
            "needs the same number everywhere; name 1\n");
  EXPECT_EQ(FaultsOf(RingFile("jaccl", {"null, [\"x\", \"y\"], \"z\"",
                                        "[\"x\", \"y\"], null, \"z\"", "\"x\", \"y\", null"})),
            "")
      << "a mesh uses the first of each";
}

TEST(Hostfile, ARingHasNoMoreThanFourDevicesASide) {
  const std::string five = R"(["p", "q", "r", "s", "t"])", four = R"(["p", "q", "r", "s"])";
  EXPECT_EQ(FaultsOf(RingFile("jaccl-ring", {"null, " + four, four + ", null"})), "");
  EXPECT_EQ(FaultsOf(RingFile("jaccl-ring", {"null, " + five, five + ", null"})),
            "2: host 0 names 5 devices towards host 1: MLX's ring takes 4 at most; name 4\n"
            "3: host 1 names 5 devices towards host 0: MLX's ring takes 4 at most; name 4\n");
  EXPECT_EQ(FaultsOf(RingFile("jaccl-ring", {"null, null", "null, null"})),
            "2: host 0 names no device towards host 1, its neighbour in the ring\n"
            "3: host 1 names no device towards host 0, its neighbour in the ring\n");
}

TEST(Hostfile, AMeshHasEightHostsAtMost) {
  std::vector<std::string> rows(9);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < rows.size(); ++j) {
      absl::StrAppend(&rows[i], j == 0 ? "" : ", ", i == j ? "null" : "\"x\"");
    }
  }
  EXPECT_EQ(FaultsOf(RingFile("jaccl", rows)),
            "1: 9 hosts: MLX's mesh takes 8; \"jaccl-ring\" takes more\n");
}

TEST(Hostfile, WhatIsKnownOfItsHostsIsHeldAgainstEachOther) {
  const std::string text = RingFile("jaccl", {"null, \"x\"", "\"y\", null"});
  const auto faults = [&](std::vector<HostSystem> systems, std::vector<std::string> unknown) {
    std::vector<std::string> unchecked;
    std::string all;
    for (const HostfileFault& fault : CheckHostfile(text, systems, &unchecked)) {
      absl::StrAppend(&all, fault.line, ": ", fault.message, "\n");
    }
    EXPECT_EQ(unchecked, unknown);
    return all;
  };
  const std::string mix =
      "3: host 1 runs macOS 26.2 and host 0 26.4: MLX sends RDMA frames of different sizes before "
      "26.3 and from it on; install the same macOS on all hosts\n";
  EXPECT_EQ(faults({}, {"a", "b"}), "");
  EXPECT_EQ(faults({{{"A.local"}, {}, "26.4"}, {{"b"}, {}, "26.2"}}, {}), mix) << "by their names";
  EXPECT_EQ(faults({{{"x"}, {"10.0.0.1"}, "26.4"}, {{"y"}, {"10.0.0.2"}, "26.2"}}, {}), mix)
      << "by their addresses";
  EXPECT_EQ(faults({{{"a"}, {}, "26.4"}, {{"b"}, {}, "26.3"}}, {}), "");
  EXPECT_EQ(faults({{{"a"}, {}, "26.2"}, {{"b"}, {}, "26.2.1"}}, {}), "");
  EXPECT_EQ(faults({{{"a"}, {}, "26.4"}}, {"b"}), "");
  EXPECT_EQ(faults({{{"a"}, {}, "26.4"}, {{"b"}, {}, ""}}, {"b"}), "") << "not known is no fault";
  EXPECT_EQ(faults({{{"a"}, {}, "26.4"}, {{"b"}, {}, "26.2"}, {{"b"}, {}, "26.4"}}, {"b"}), "")
      << "two machines of one name: nobody knows which";
  EXPECT_EQ(faults({{{"a"}, {}, "26.4"}, {{"b"}, {}, "26.1"}}, {}),
            "3: host 1 runs macOS 26.1: RDMA needs 26.2 or later\n");
  // Over TCP it does not matter.
  std::vector<std::string> unchecked;
  EXPECT_TRUE(CheckHostfile("[{\"ssh\": \"a\", \"ips\": [\"10.0.0.1\"]}]", {}, &unchecked).empty());
  EXPECT_TRUE(unchecked.empty());
}

TEST(Hostfile, AnyBytesAreSafe) {
  const std::string good =
      "{\"hosts\": [{\"ssh\": \"a\", \"ips\": [\"10.0.0.1\"], \"rdma\": [null, [\"x\"]]}, 7]}";
  const std::vector<HostSystem> systems = {{{"a"}, {"10.0.0.1"}, "26.2"}};
  for (size_t cut = 0; cut <= good.size(); ++cut) CheckHostfile(good.substr(0, cut), systems);
  for (size_t at = 0; at < good.size(); ++at) {
    for (const char c : {'\0', '"', '{', ']', '9', '\n', '\\'}) {
      std::string damaged = good;
      damaged[at] = c;
      CheckHostfile(damaged, systems);
    }
  }
}

}  // namespace
}  // namespace macrame::transport
