#include "agentd/cores/https_names.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "transport/trust.h"

namespace macrame::agentd {
namespace {

v1::NodeIdentity Node(const std::string& id, const std::string& hostname,
                      const std::vector<std::string>& ips) {
  v1::NodeIdentity node;
  node.set_node_id(id);
  node.set_hostname(hostname);
  for (const std::string& ip : ips) node.add_addresses()->set_ip(ip);
  return node;
}

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(WantedHttpsNames, AreTheHostsOwn) {
  const auto names = WantedHttpsNames(
      Node("a", "Studio-1.local", {"192.168.1.7", "203.0.113.5", "fe80::1"}), {"llm.lan", "x.com"});
  EXPECT_EQ(names,
            (std::vector<std::string>{"127.0.0.1", "192.168.1.7", "::1", "fe80::1", "llm.lan",
                                      "localhost", "studio-1", "studio-1.local"}));
}

TEST(WantedHttpsNames, AreBoundedAndStable) {
  std::vector<std::string> ips;
  for (int i = 0; i < 200; ++i) ips.push_back(absl::StrCat("10.0.0.", i));
  const v1::NodeIdentity node = Node("a", "mini", ips);
  const auto names = WantedHttpsNames(node, {});
  EXPECT_EQ(names.size(), transport::kHttpsNamesMax);
  EXPECT_TRUE(Has(names, "mini.local")) << "names come before addresses";
  EXPECT_EQ(WantedHttpsNames(node, {}), names) << "or it would be signed again and again";
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

// Spelled otherwise it is signed all the same: as one that certificates have for it.
TEST(WantedHttpsNames, AreSpelledAsCertificatesHaveThem) {
  const v1::NodeIdentity node = Node("a", "mini", {"FD00:0:0:0::7"});
  const auto names = WantedHttpsNames(node, {"Models.LAN", "fd00:0::0008", "fd00::8"});
  EXPECT_TRUE(Has(names, "models.lan"));
  EXPECT_TRUE(Has(names, "fd00::7"));
  EXPECT_EQ(std::count(names.begin(), names.end(), "fd00::8"), 1);
  EXPECT_EQ(names.size(), 8u) << "each once";
}

// A stolen node writes another's address in a way of its own.
TEST(CheckHttpsNames, AnotherMembersAreRefusedHoweverTheyAreSpelled) {
  const std::vector<v1::NodeIdentity> members = {Node("a", "mini-1", {"fd00::1"}),
                                                 Node("b", "mini-2", {"fd00::2", "FD00::0:3"})};
  for (const char* theirs : {"fd00::2", "FD00::2", "fd00:0::2", "fd00:0:0:0:0:0:0:2", "fd00::0002",
                             "fd00::0.0.0.2", "fd00::3"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(CheckHttpsNames({theirs}, "a", members))) << theirs;
    EXPECT_TRUE(CheckHttpsNames({theirs}, "b", members).ok()) << theirs;
  }
  EXPECT_TRUE(CheckHttpsNames({"fd00::1", "fd00::4", "0:0:0::1"}, "a", members).ok());
}

TEST(CheckHttpsNames, AnotherMembersAreRefused) {
  const std::vector<v1::NodeIdentity> members = {Node("a", "mini-1", {"192.168.1.1"}),
                                                 Node("b", "Mini-2.local", {"192.168.1.2"})};
  const auto may = [&](const std::string& name, const std::string& caller = "a") {
    return CheckHttpsNames({"localhost", "127.0.0.1", name}, caller, members);
  };
  EXPECT_TRUE(may("mini-1").ok());
  EXPECT_TRUE(may("mini-1.local").ok());
  EXPECT_TRUE(may("192.168.1.1").ok());
  EXPECT_TRUE(may("llm.lan").ok()) << "nobody's";
  for (const char* theirs : {"mini-2", "MINI-2.local", "mini-2.lan", "192.168.1.2"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(may(theirs))) << theirs;
    EXPECT_TRUE(may(theirs, "b").ok()) << theirs;
  }
  EXPECT_NE(may("mini-2").message().find("'mini-2' is a name of node Mini-2.local"),
            absl::string_view::npos)
      << may("mini-2");
}

}  // namespace
}  // namespace macrame::agentd
