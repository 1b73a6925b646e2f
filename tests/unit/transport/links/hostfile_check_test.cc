#include <gtest/gtest.h>

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

TEST(Hostfile, AnyBytesAreSafe) {
  const std::string good =
      "{\"hosts\": [{\"ssh\": \"a\", \"ips\": [\"10.0.0.1\"], \"rdma\": [null, [\"x\"]]}, 7]}";
  for (size_t cut = 0; cut <= good.size(); ++cut) CheckHostfile(good.substr(0, cut));
  for (size_t at = 0; at < good.size(); ++at) {
    for (const char c : {'\0', '"', '{', ']', '9', '\n', '\\'}) {
      std::string damaged = good;
      damaged[at] = c;
      CheckHostfile(damaged);
    }
  }
}

}  // namespace
}  // namespace macrame::transport
