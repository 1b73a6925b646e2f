// Access files: written and read, and which agent answers to one.

#include "transport/access_file.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/reasons.h"
#include "tests/unit/fresh_folder.h"
#include "transport/asio_dispatcher.h"
#include "transport/grpc_server.h"
#include "transport/private_file.h"
#include "transport/tls_credentials.h"
#include "transport/trust.h"

namespace macrame::transport {
namespace {

constexpr char kKeyId[] = "0123456789ab";
const NodeId kNode("00000000000000000000000000000001");
const NodeId kOther("00000000000000000000000000000002");

v1::AccessFile MakeFile(const ClusterSecret& secret, int64_t now_s, int64_t valid_for_s) {
  const auto pair = MakePersonCredentials(secret, kKeyId, now_s, now_s + valid_for_s);
  EXPECT_TRUE(pair.ok()) << pair.status();
  v1::AccessFile file;
  file.set_cluster_id(secret.cluster_id);
  file.set_cluster_name(secret.cluster_name);
  file.set_key_id(kKeyId);
  file.set_key_name("lap \"top\"");
  file.set_expires_unix_ms(static_cast<uint64_t>(now_s + valid_for_s) * 1000);
  file.set_authority_certificate(secret.authority_certificate_pem);
  file.set_certificate(pair->certificate_pem);
  file.set_private_key(pair->key_pem);
  return file;
}

void AddNode(const NodeId& id, const std::string& name, const std::string& address,
             v1::AccessFile* file) {
  v1::AccessFileNode& node = *file->add_nodes();
  node.set_node_id(id.value());
  node.set_hostname(name);
  node.add_addresses(address);
}

class AccessFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = FreshFolder() + "/new";
    path_ = folder_ + "/cluster.access";
    file_ = MakeFile(secret_, now_s_, 3600);
    AddNode(kNode, "ada", "10.0.0.7:4711", &file_);
  }

  // What reading `text` at that path says.
  absl::Status WhyNot(const std::string& text) {
    EXPECT_TRUE(ReplacePrivateFile(path_, text).ok());
    return ReadAccessFile(path_, now_s_).status();
  }

  const ClusterSecret secret_ = *CreateClusterSecret("lab");
  const int64_t now_s_ = SystemUnixSeconds();
  std::string folder_, path_;
  v1::AccessFile file_;
};

TEST_F(AccessFileTest, WhatIsWrittenIsReadBack) {
  ASSERT_TRUE(WriteNewPrivateFile(path_, FormatAccessFile(file_)).ok());
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const auto read = ReadAccessFile(path_, now_s_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->cluster_name(), "lab");
  EXPECT_EQ(read->key_id(), kKeyId);
  EXPECT_EQ(read->key_name(), "lap \"top\"");
  EXPECT_EQ(read->private_key(), file_.private_key());
  ASSERT_EQ(read->nodes_size(), 1);
  EXPECT_EQ(read->nodes(0).hostname(), "ada");
  EXPECT_EQ(read->nodes(0).addresses(0), "10.0.0.7:4711");
  EXPECT_TRUE(absl::IsAlreadyExists(WriteNewPrivateFile(path_, "other")));
}

TEST_F(AccessFileTest, OthersMayNotReadIt) {
  ASSERT_TRUE(WriteNewPrivateFile(path_, FormatAccessFile(file_)).ok());
  ASSERT_EQ(::chmod(path_.c_str(), 0640), 0);
  const absl::Status status = ReadAccessFile(path_, now_s_).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_NE(status.message().find("chmod 600"), absl::string_view::npos) << status;
  EXPECT_TRUE(absl::IsNotFound(ReadAccessFile(path_ + "-none", now_s_).status()));
}

TEST_F(AccessFileTest, EachFaultHasItsOwnSentence) {
  const std::string whole = FormatAccessFile(file_);
  const auto says = [&](const std::string& text, absl::string_view what) {
    const absl::Status status = WhyNot(text);
    EXPECT_EQ(ReasonOf(status).code(), reasons::kConfigInvalid) << status;
    EXPECT_NE(status.message().find(what), absl::string_view::npos) << status;
    EXPECT_NE(ReasonOf(status).remedy().find("--access-file"), std::string::npos);
  };
  says("", "cut short");
  says(whole.substr(0, whole.size() / 2), "cut short");
  says("[1]", "another kind");
  says("{\"macrame_cluster_secret\": 1}", "another kind");
  says(absl::StrReplaceAll(whole, {{"\"macrame_access_file\": 1", "\"macrame_access_file\": 2"}}),
       "newer version");
  v1::AccessFile other = file_;
  other.set_private_key(MakeFile(secret_, now_s_, 60).private_key());
  says(FormatAccessFile(other), "don't belong together");
  other = file_;
  other.set_authority_certificate(CreateClusterSecret("other")->authority_certificate_pem);
  says(FormatAccessFile(other), "don't belong together");
  other = file_;
  other.set_certificate("-----BEGIN CERTIFICATE-----\n");
  says(FormatAccessFile(other), "can't be read");
  other = file_;
  other.set_expires_unix_ms(static_cast<uint64_t>(now_s_) * 1000);
  says(FormatAccessFile(other), "has expired");
}

TEST_F(AccessFileTest, NodesThatAreMalformedAreLeftOut) {
  AddNode(NodeId("no id"), "bob", "10.0.0.8:1", &file_);
  for (int i = 0; i < 2 * kAccessNodesMax; ++i) AddNode(kOther, "eve", "10.0.0.9:1", &file_);
  ASSERT_TRUE(ReplacePrivateFile(path_, FormatAccessFile(file_)).ok());
  const auto read = ReadAccessFile(path_, now_s_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->nodes_size(), kAccessNodesMax);
  EXPECT_EQ(read->nodes(1).hostname(), "eve");
}

// A node's server on loopback, as agentd has it.
class FindAgentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.emplace(dispatcher_);
    const auto port = server_->StartTcp("127.0.0.1", 0,
                                        TlsServerCredentials(*MakeNodeCredentials(secret_, kNode)));
    ASSERT_TRUE(port.ok()) << port.status();
    address_ = absl::StrCat("127.0.0.1:", *port);
    file_ = MakeFile(secret_, now_s_, 3600);
  }
  // A port where nobody listens: it was this process's a moment ago.
  std::string Closed() {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    closed_ = fd;  // bound and not listening: nobody else gets it
    return absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  void TearDown() override {
    server_.reset();
    if (closed_ >= 0) ::close(closed_);
  }

  const ClusterSecret secret_ = *CreateClusterSecret("lab");
  const int64_t now_s_ = SystemUnixSeconds();
  AsioDispatcher dispatcher_;
  std::optional<GrpcServer> server_;
  std::string address_;
  int closed_ = -1;
  v1::AccessFile file_;
};

TEST_F(FindAgentTest, WhoAnswersIsFoundAndNamed) {
  AddNode(kOther, "off", Closed(), &file_);
  AddNode(kNode, "ada.local", address_, &file_);
  for (const char* host : {"", "ada", "ADA.local", "0000"}) {
    const auto found = FindAgent(file_, host);
    ASSERT_TRUE(found.ok()) << host << ": " << found.status();
    EXPECT_EQ(found->address, address_);
    EXPECT_EQ(found->node_id, kNode);
  }
  const auto by_address =
      FindAgent(file_, absl::StrReplaceAll(address_, {{"127.0.0.1", "localhost"}}));
  ASSERT_TRUE(by_address.ok()) << by_address.status();
  EXPECT_EQ(by_address->node_id, kNode) << "a name that the file does not have";
}

TEST_F(FindAgentTest, TheFilesOwnPortIsTakenWhereNoneIsSaid) {
  AddNode(kOther, "gone", absl::StrReplaceAll(address_, {{"127.0.0.1", "127.0.0.9"}}), &file_);
  const auto found = FindAgent(file_, "127.0.0.1");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->address, address_);
}

TEST_F(FindAgentTest, NobodyIsTold) {
  AddNode(kNode, "ada", Closed(), &file_);
  const absl::Status status = FindAgent(file_, "").status();
  EXPECT_EQ(ReasonOf(status).code(), reasons::kAgentUnreachable) << status;
  EXPECT_NE(status.message().find(file_.nodes(0).addresses(0)), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("'lab'"), absl::string_view::npos) << status;
  const absl::Status none = FindAgent(MakeFile(secret_, now_s_, 60), "").status();
  EXPECT_EQ(ReasonOf(none).code(), reasons::kAgentUnreachable) << none;
  const absl::Status wrong = FindAgent(file_, "ada:99999").status();
  EXPECT_EQ(ReasonOf(wrong).code(), reasons::kBadRequest) << wrong;
}

TEST_F(FindAgentTest, AnotherClustersAgentIsNotTaken) {
  const ClusterSecret other = *CreateClusterSecret("other");
  v1::AccessFile file = MakeFile(other, now_s_, 3600);
  AddNode(kNode, "ada", address_, &file);
  const absl::Status status = FindAgent(file, "").status();
  EXPECT_EQ(ReasonOf(status).code(), reasons::kWrongCluster) << status;
}

TEST_F(FindAgentTest, AnExpiredCertificateIsSaidByTheServer) {
  v1::AccessFile file = MakeFile(secret_, now_s_ - 7200, 3600);
  AddNode(kNode, "ada", address_, &file);
  const absl::Status status = FindAgent(file, "").status();
  EXPECT_EQ(ReasonOf(status).code(), reasons::kCertExpired) << status;
}

// What takes a connection and says nothing keeps nobody from the node that answers.
TEST_F(FindAgentTest, ASilentAddressIsPassedBy) {
  const std::string silent = Closed();
  ASSERT_EQ(::listen(closed_, 4), 0);
  AddNode(kOther, "silent", silent, &file_);
  AddNode(kNode, "ada", address_, &file_);
  const auto found = FindAgent(file_, "");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->node_id, kNode);
}

}  // namespace
}  // namespace macrame::transport
