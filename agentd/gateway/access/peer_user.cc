#include "agentd/gateway/access/peer_user.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace macrame::agentd {
namespace {

namespace ip = boost::asio::ip;

constexpr absl::string_view kEstablished = "01";
// Columns of the table: number, own end, other end, state, queues, timer, retransmits, user.
constexpr size_t kOwnColumn = 1, kPeerColumn = 2, kStateColumn = 3, kUserColumn = 7;

// The kernel prints addresses as words of 32 bits, as this machine has them in memory.
template <typename Bytes>
std::string HexWords(const Bytes& bytes) {
  std::string text;
  for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    uint32_t word = 0;
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), 4,
                reinterpret_cast<unsigned char*>(&word));
    absl::StrAppend(&text, absl::StrFormat("%08X", word));
  }
  return text;
}

// As /proc/net/tcp has it, and as tcp6 does: IPv4 stands there as a mapped address.
std::vector<std::string> TextsOf(const ip::tcp::endpoint& end) {
  const std::string port = absl::StrFormat(":%04X", end.port());
  const ip::address address = end.address();
  if (address.is_v6() && !address.to_v6().is_v4_mapped()) {
    return {HexWords(address.to_v6().to_bytes()) + port};
  }
  const ip::address_v4 v4 =
      address.is_v4() ? address.to_v4() : ip::make_address_v4(ip::v4_mapped, address.to_v6());
  return {HexWords(v4.to_bytes()) + port,
          HexWords(ip::make_address_v6(ip::v4_mapped, v4).to_bytes()) + port};
}

bool Is(absl::string_view column, const std::vector<std::string>& texts) {
  return std::find(texts.begin(), texts.end(), column) != texts.end();
}

}  // namespace

std::optional<uint32_t> UserInSocketTable(std::string_view table, const ip::tcp::endpoint& peer,
                                          const ip::tcp::endpoint& own) {
  const std::vector<std::string> of_peer = TextsOf(peer), of_own = TextsOf(own);
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(table.data(), table.size()), '\n')) {
    const std::vector<absl::string_view> columns = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (columns.size() <= kUserColumn || columns[kStateColumn] != kEstablished) continue;
    // The other process's socket: its own end is our peer.
    if (!Is(columns[kOwnColumn], of_peer) || !Is(columns[kPeerColumn], of_own)) continue;
    uint32_t user = 0;
    if (absl::SimpleAtoi(columns[kUserColumn], &user)) return user;
  }
  return std::nullopt;
}

bool IsObeyedUser(uint32_t user, const std::string& group) {
  if (user == 0 || user == ::geteuid()) return true;
  if (group.empty()) return false;
  const ::group* members = ::getgrnam(group.c_str());
  if (members == nullptr) return false;
  const gid_t gid = members->gr_gid;
  const std::vector<std::string> names = [&] {
    std::vector<std::string> all;
    for (char** name = members->gr_mem; *name != nullptr; ++name) all.emplace_back(*name);
    return all;
  }();
  const ::passwd* who = ::getpwuid(user);
  if (who == nullptr) return false;
  return who->pw_gid == gid || std::find(names.begin(), names.end(), who->pw_name) != names.end();
}

}  // namespace macrame::agentd
