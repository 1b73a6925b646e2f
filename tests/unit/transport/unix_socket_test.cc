#include "transport/unix_socket.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/unit/fresh_folder.h"

namespace macrame::transport {
namespace {

int BindAt(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(fd, 4), 0);
  return fd;
}

class UnixSocketTest : public ::testing::Test {
 protected:
  void SetUp() override { folder_ = FreshFolder() + "/new"; }
  std::string folder_;
};

TEST_F(UnixSocketTest, TheFolderIsMadeForThisUserOnly) {
  ASSERT_TRUE(PrepareSocketPath(folder_ + "/a.sock").ok());
  struct stat info {};
  ASSERT_EQ(::stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(UnixSocketTest, AStaleSocketIsRemovedAndALiveOneKept) {
  const std::string path = folder_ + "/a.sock";
  ASSERT_TRUE(PrepareSocketPath(path).ok());
  const int fd = BindAt(path);
  EXPECT_EQ(PrepareSocketPath(path).code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(RestrictSocket(path).ok());
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ::close(fd);
  EXPECT_TRUE(PrepareSocketPath(path).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(UnixSocketTest, AGroupIsLetIn) {
  const std::string path = folder_ + "/a.sock";
  ASSERT_TRUE(PrepareSocketPath(path).ok());
  const int fd = BindAt(path);
  ASSERT_TRUE(RestrictSocket(path).ok());
  const absl::Status unknown = ShareSocket(path, "no-such-group-here");
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u) << "refused, and open to others";
  const ::group* own = ::getgrgid(::getegid());
  ASSERT_NE(own, nullptr);
  ASSERT_TRUE(ShareSocket(path, own->gr_name).ok());
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  EXPECT_EQ(info.st_gid, ::getegid());
  ::close(fd);
}

TEST_F(UnixSocketTest, AFolderThatOthersMayWriteIsRefused) {
  std::filesystem::create_directories(folder_);
  ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
  const absl::Status open = PrepareSocketPath(folder_ + "/a.sock");
  EXPECT_EQ(open.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(open.message().find("0777"), absl::string_view::npos) << open;
  ASSERT_EQ(::chmod(folder_.c_str(), 01777), 0);  // as /tmp is
  EXPECT_TRUE(PrepareSocketPath(folder_ + "/a.sock").ok());
}

#ifdef __linux__
TEST_F(UnixSocketTest, AnotherUsersFolderAndSocketAreRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make what is another user's";
  constexpr uid_t kOther = 4711, kOwn = 4712;
  const std::string path = folder_ + "/a.sock";
  std::filesystem::create_directories(folder_);
  ASSERT_EQ(::chmod(folder_.c_str(), 01777), 0);
  const int fd = BindAt(path);
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    // This process is root's, and so is the one behind the socket: believed.
    if (::setresuid(kOwn, kOwn, 0) != 0) ::_exit(90);
    if (!CheckSocketOwner(path).ok()) ::_exit(1);
    if (::setresuid(0, 0, 0) != 0 || ::chown(path.c_str(), kOther, kOther) != 0) ::_exit(91);
    if (::setresuid(kOwn, kOwn, 0) != 0) ::_exit(92);
    if (CheckSocketOwner(path).code() != absl::StatusCode::kPermissionDenied) ::_exit(2);
    if (::setresuid(0, 0, 0) != 0 || ::chown(path.c_str(), 0, 0) != 0 ||
        ::chown(folder_.c_str(), kOther, kOther) != 0) {
      ::_exit(93);
    }
    if (::setresuid(kOwn, kOwn, 0) != 0) ::_exit(94);
    if (CheckSocketOwner(path).code() != absl::StatusCode::kPermissionDenied) ::_exit(3);
    ::_exit(PrepareSocketPath(path).code() == absl::StatusCode::kPermissionDenied ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ::close(fd);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

TEST_F(UnixSocketTest, AFileInTheWayIsNotRemoved) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ + "/a.sock") << "precious";
  EXPECT_EQ(PrepareSocketPath(folder_ + "/a.sock").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/a.sock"));
}

TEST_F(UnixSocketTest, PathsThatCannotWorkAreRefused) {
  EXPECT_EQ(PrepareSocketPath("/" + std::string(kSocketPathBytesMax - 1, 'x')).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PrepareSocketPath("relative.sock").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_LT(DefaultSocketPath().size(), kSocketPathBytesMax);
}

}  // namespace
}  // namespace macrame::transport
