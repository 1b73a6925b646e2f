// Reading host files of mlx.launch as strictly as they should be: what it would refuse, and what it
// takes and then stalls on.

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/backends.h"
#include "transport/links/ipv4.h"
#include "transport/links/judge.h"
#include "transport/links/link_ends.h"
#include "transport/links/mlx_settings.h"

namespace macrame::transport {
namespace {

using nlohmann::json;

constexpr size_t kFileBytesMax = 1 << 20;
constexpr size_t kHostsMax = 1024;
// MESH_MAX_PEERS of jaccl's mesh_impl.h, MLX 0.32.
constexpr size_t kMeshHostsMax = 8;

int LineAt(const std::string& text, size_t offset) {
  const size_t end = std::min(offset, text.size());
  return 1 + static_cast<int>(
                 std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
}

// On which line each host begins, and each of its keys. A scan of the text's own structure, because
// the parser keeps no positions; only used on text that parsed.
class HostLines {
 public:
  explicit HostLines(const std::string& text)
      : is_list_(FirstMark(text) == '['), host_depth_(is_list_ ? 2 : 3), in_hosts_(is_list_) {
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '\n') ++line_;
      if (c == '"') {
        TakeWord(ReadString(text, &i, &line_));
      } else if (c == '[' || c == '{') {
        ++depth_;
        if (c == '{' && depth_ == host_depth_ && in_hosts_) hosts_.push_back({line_, {}});
      } else if (c == ']' || c == '}') {
        if (c == ']' && depth_ == host_depth_ - 1) in_hosts_ = in_hosts_ && is_list_;
        --depth_;
      }
    }
  }

  int LineOf(size_t host, const std::string& key) const {
    if (host >= hosts_.size()) return 1;
    const auto found = hosts_[host].keys.find(key);
    return found == hosts_[host].keys.end() ? hosts_[host].line : found->second;
  }

 private:
  struct Host {
    int line;
    std::map<std::string, int> keys;
  };

  static char FirstMark(const std::string& text) {
    const size_t at = text.find_first_of("[{");
    return at == std::string::npos ? '\0' : text[at];
  }

  static std::string ReadString(const std::string& text, size_t* i, int* line) {
    std::string word;
    for (++*i; *i < text.size() && text[*i] != '"'; ++*i) {
      if (text[*i] == '\n') ++*line;
      if (text[*i] == '\\') ++*i;
      if (*i < text.size()) word.push_back(text[*i]);
    }
    return word;
  }

  // A string: perhaps the key of the list of hosts, or a host's.
  void TakeWord(const std::string& word) {
    if (depth_ == 1 && !is_list_ && word == "hosts") in_hosts_ = true;
    if (depth_ == host_depth_ && in_hosts_ && !hosts_.empty()) {
      hosts_.back().keys.emplace(word, line_);
    }
  }

  const bool is_list_;
  const int host_depth_;
  int depth_ = 0, line_ = 1;
  bool in_hosts_;
  std::vector<Host> hosts_;
};

class Checker {
 public:
  Checker(const std::string& text, std::span<const HostSystem> systems)
      : text_(text), systems_(systems) {}

  std::vector<HostfileFault> Check() {
    if (text_.size() > kFileBytesMax) return {{1, "a host file of more than 1 MiB"}};
    try {
      document_ = json::parse(text_);
    } catch (const json::parse_error& error) {
      return {{LineAt(text_, error.byte == 0 ? 0 : error.byte - 1), "not JSON"}};
    }
    lines_.emplace(text_);
    if (!FindHosts()) return std::move(faults_);
    for (size_t i = 0; i < hosts_.size(); ++i) CheckHost(i);
    CheckBackend();
    if (IsForJaccl()) {
      if (backend_ == MlxBackend::kJaccl) CheckMeshSize();
      const bool may_be_ring = !backend_.has_value() && !missing_pairs_.empty();
      if (backend_ == MlxBackend::kJacclRing || may_be_ring) CheckRing();
      CheckSystems();
    }
    return std::move(faults_);
  }

  // Hosts whose macOS matters and is not known.
  std::vector<std::string> TakeUnchecked() { return std::move(unchecked_); }

 private:
  void Fault(int line, std::string message) { faults_.push_back({line, std::move(message)}); }

  int TopLine(const char* key) const {
    const size_t at = text_.find(absl::StrCat("\"", key, "\""));
    return at == std::string::npos ? 1 : LineAt(text_, at);
  }

  bool FindHosts() {
    json list = document_;
    if (document_.is_object()) {
      CheckTop();
      if (!document_.contains("hosts")) {
        Fault(1, "no \"hosts\"");
        return false;
      }
      list = document_["hosts"];
    }
    if (!list.is_array() || list.empty()) {
      Fault(TopLine("hosts"), "\"hosts\" must be a list with at least one host");
      return false;
    }
    if (list.size() > kHostsMax) {
      Fault(TopLine("hosts"), absl::StrCat("more than ", kHostsMax, " hosts"));
      return false;
    }
    hosts_ = list;
    return true;
  }

  void CheckTop() {
    const auto backend = document_.find("backend");
    if (backend != document_.end()) {
      const std::string name = backend->is_string() ? backend->get<std::string>() : "?";
      backend_ = MlxBackendNamed(name);
      if (!backend_.has_value() && !name.empty()) {
        Fault(TopLine("backend"), "\"backend\" must be ring, jaccl, jaccl-ring, mpi or nccl");
      }
    }
    const auto envs = document_.find("envs");
    if (envs == document_.end()) return;
    if (!envs->is_array()) return Fault(TopLine("envs"), "\"envs\" must be a list");
    for (const json& env : *envs) {
      const bool good = env.is_string() && absl::StrContains(env.get<std::string>(), "=");
      if (!good) Fault(TopLine("envs"), "each of \"envs\" must be NAME=VALUE");
    }
  }

  void CheckHost(size_t i) {
    const json& host = hosts_[i];
    if (!host.is_object()) return Fault(lines_->LineOf(i, ""), HostText(i, "must be an object"));
    const auto ssh = host.find("ssh");
    if (ssh == host.end() || !ssh->is_string() || ssh->get<std::string>().empty()) {
      Fault(lines_->LineOf(i, "ssh"), HostText(i, "has no \"ssh\" name"));
    }
    CheckIps(i, host);
    CheckRow(i, host);
  }

  std::string HostText(size_t i, const char* what) const {
    return absl::StrCat("host ", i, " ", what);
  }

  void CheckIps(size_t i, const json& host) {
    const auto ips = host.find("ips");
    const int line = lines_->LineOf(i, "ips");
    ip_counts_.push_back(0);
    if (ips == host.end()) return;
    if (!ips->is_array()) return Fault(line, HostText(i, "\"ips\" must be a list"));
    for (const json& ip : *ips) {
      const std::string text = ip.is_string() ? ip.get<std::string>() : "";
      const auto address = ParseIpv4(text);
      const bool is_v6 = absl::StrContains(text, ":") && !absl::StrContains(text, "[");
      if (text == "0.0.0.0" || text == "::") {
        Fault(line, absl::StrCat("host ", i, ": ", text, " is no address that others could reach"));
      } else if (!address && !is_v6) {
        Fault(line, absl::StrCat("host ", i, ": '", text.substr(0, 64), "' is no address"));
      } else if (address && IsLoopback(*address) && !IsLocal(host) && hosts_.size() > 1) {
        Fault(line, absl::StrCat("host ", i, ": ", text, " is its own loopback"));
      }
      ++ip_counts_.back();
    }
  }

  // mlx.launch starts ranks on this very machine for these.
  static bool IsLocal(const json& host) {
    const std::string name =
        host.value("ssh", json("")).is_string() ? host.value("ssh", std::string()) : std::string();
    return name == "127.0.0.1" || name == "localhost";
  }

  void CheckRow(size_t i, const json& host) {
    const auto row = host.find("rdma");
    const int line = lines_->LineOf(i, "rdma");
    counts_.emplace_back();
    if (row == host.end() || (row->is_array() && row->empty())) {
      without_row_.push_back(i);
      return;
    }
    has_rows_ = true;
    if (!row->is_array() || row->size() != hosts_.size()) {
      return Fault(line, absl::StrCat("host ", i, ": \"rdma\" must have one entry for each of the ",
                                      hosts_.size(), " hosts"));
    }
    for (size_t j = 0; j < row->size(); ++j) {
      counts_.back().push_back(DevicesOf((*row)[j]));
      CheckCell(i, j, (*row)[j], line);
    }
  }

  static size_t DevicesOf(const json& cell) {
    return cell.is_null() ? 0 : cell.is_array() ? cell.size() : 1;
  }

  void CheckCell(size_t i, size_t j, const json& cell, int line) {
    const bool is_list =
        cell.is_array() && !cell.empty() &&
        std::all_of(cell.begin(), cell.end(), [](const json& name) { return name.is_string(); });
    if (i == j) {
      if (!cell.is_null()) {
        Fault(line, absl::StrCat("host ", i, ": its own entry of \"rdma\" must be null"));
      }
      return;
    }
    if (!cell.is_null() && !cell.is_string() && !is_list) {
      return Fault(line, absl::StrCat("host ", i, ": entry ", j,
                                      " of \"rdma\" must be null, a device or a list of devices"));
    }
    const json& other = hosts_[j].is_object() ? hosts_[j].value("rdma", json::array()) : json();
    if (j < i || !other.is_array() || other.size() != hosts_.size()) return;
    const size_t here = DevicesOf(cell), there = DevicesOf(other[i]);
    if (here != there) {
      Fault(line, absl::StrCat("hosts ", i, " and ", j, " name ", here, " and ", there,
                               " devices for the cables between them"));
    }
    if (here == 0) missing_pairs_.push_back(absl::StrCat(i, " - ", j));
  }

  bool IsForJaccl() const { return backend_.has_value() ? IsJaccl(*backend_) : has_rows_; }

  void CheckMeshSize() {
    if (hosts_.size() <= kMeshHostsMax) return;
    Fault(TopLine("hosts"), absl::StrCat(hosts_.size(), " hosts: MLX's mesh takes ", kMeshHostsMax,
                                         "; \"jaccl-ring\" takes more"));
  }

  // The fewest devices that any two neighbours name, of those that name any, and where.
  struct Fewest {
    size_t devices = 0, from = 0, to = 0;
  };
  Fewest FewestDevices() const {
    Fewest fewest;
    for (size_t i = 0; i < counts_.size(); ++i) {
      const size_t next = (i + 1) % counts_.size();
      for (const auto& [from, to] : {std::pair(i, next), std::pair(next, i)}) {
        const size_t devices = counts_[from][to];
        const bool is_fewer = fewest.devices == 0 || devices < fewest.devices;
        if (devices > 0 && is_fewer) fewest = {devices, from, to};
      }
    }
    return fewest;
  }

  // MLX compares every neighbour's cell with the first one, and says no more than that the matrix
  // is not valid: here it is told which cells have too many.
  void CheckRing() {
    const size_t count = hosts_.size();
    const bool is_whole = std::all_of(counts_.begin(), counts_.end(),
                                      [&](const auto& row) { return row.size() == count; });
    if (count < 2 || counts_.size() != count || !is_whole) return;  // told already
    const Fewest fewest = FewestDevices();
    const size_t most = std::min<size_t>(fewest.devices, kRingCablesMax);
    for (size_t i = 0; i < count; ++i) {
      for (const size_t j : std::set<size_t>{(i + count - 1) % count, (i + 1) % count}) {
        CheckNeighbour(i, j, most, fewest);
      }
    }
  }

  void CheckNeighbour(size_t i, size_t j, size_t most, const Fewest& fewest) {
    const size_t devices = counts_[i][j];
    const int line = lines_->LineOf(i, "rdma");
    if (devices == 0) {
      Fault(line, absl::StrCat("host ", i, " names no device towards host ", j,
                               ", its neighbour in the ring"));
    } else if (devices > kRingCablesMax) {
      Fault(line, absl::StrCat("host ", i, " names ", devices, " devices towards host ", j,
                               ": MLX's ring takes ", kRingCablesMax, " at most; name ", most));
    } else if (devices > most) {
      Fault(line,
            absl::StrCat("host ", i, " names ", devices, " devices towards host ", j, ", host ",
                         fewest.from, " only ", fewest.devices, " towards host ", fewest.to,
                         ": MLX's ring needs the same number everywhere; name ", most));
    }
  }

  // Plain names: no user, no domain of the local network, lower case.
  static std::string PlainName(std::string name) {
    name = absl::AsciiStrToLower(name.substr(name.find('@') + 1));
    if (absl::EndsWith(name, ".")) name.pop_back();
    if (absl::EndsWith(name, ".local")) name.resize(name.size() - 6);
    return name;
  }

  static std::string TextOf(const json& host, const char* key) {
    const auto found = host.is_object() ? host.find(key) : host.end();
    return found != host.end() && found->is_string() ? found->get<std::string>() : std::string();
  }

  // The one system that a host is, by its name, else by its addresses; null: none or several.
  const HostSystem* SystemOf(const json& host) const {
    const std::string ssh = PlainName(TextOf(host, "ssh"));
    std::set<std::string> ips = {ssh};
    if (host.is_object() && host.contains("ips") && host["ips"].is_array()) {
      for (const json& ip : host["ips"]) {
        if (ip.is_string()) ips.insert(ip.get<std::string>());
      }
    }
    std::vector<const HostSystem*> named, addressed;
    for (const HostSystem& system : systems_) {
      const bool has_name =
          !ssh.empty() && std::any_of(system.names.begin(), system.names.end(),
                                      [&](const auto& name) { return PlainName(name) == ssh; });
      const bool has_ip =
          std::any_of(system.ips.begin(), system.ips.end(), [&](const std::string& ip) {
            const auto address = ParseIpv4(ip);
            return ips.contains(ip) && !(address && IsLoopback(*address));
          });
      if (has_name) named.push_back(&system);
      if (has_ip) addressed.push_back(&system);
    }
    const auto& found = named.empty() ? addressed : named;
    return found.size() == 1 ? found[0] : nullptr;
  }

  // Frames of macOS before 26.3 and of later ones do not fit each other (kLargeFramesOsVersionMin).
  void CheckSystems() {
    std::optional<size_t> first;
    std::string first_version;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      const HostSystem* system = SystemOf(hosts_[i]);
      const std::string version = system == nullptr ? "" : system->macos_version;
      const int line = lines_->LineOf(i, "ssh");
      if (version.empty()) {
        unchecked_.push_back(TextOf(hosts_[i], "ssh"));
      } else if (CompareVersions(version, kRdmaOsVersionMin) < 0) {
        Fault(line, absl::StrCat("host ", i, " runs macOS ", version, ": RDMA needs ",
                                 kRdmaOsVersionMin, " or later"));
      } else if (!first.has_value()) {
        first = i;
        first_version = version;
      } else if (HasLargeFrames(version) != HasLargeFrames(first_version)) {
        Fault(line,
              absl::StrCat("host ", i, " runs macOS ", version, " and host ", *first, " ",
                           first_version, ": MLX sends RDMA frames of different sizes before ",
                           kLargeFramesOsVersionMin,
                           " and from it on; install the same macOS on all hosts"));
      }
    }
  }

  static bool HasLargeFrames(const std::string& version) {
    return CompareVersions(version, kLargeFramesOsVersionMin) >= 0;
  }

  void CheckBackend() {
    if (has_rows_ || (backend_.has_value() && IsJaccl(*backend_))) {
      for (const size_t i : without_row_) {
        Fault(lines_->LineOf(i, "rdma"), HostText(i, "has no \"rdma\" row"));
      }
      if (ip_counts_.empty() || ip_counts_[0] == 0) {
        Fault(lines_->LineOf(0, "ips"),
              "host 0 has no address: rank 0 needs one that every other host reaches");
      }
    }
    if (backend_ == MlxBackend::kJaccl && !missing_pairs_.empty()) {
      Fault(lines_->LineOf(0, "rdma"),
            absl::StrCat("no device for hosts ", missing_pairs_[0],
                         ": \"jaccl\" needs a mesh; \"jaccl-ring\" does with neighbours"));
    }
    if (backend_ != MlxBackend::kRing && (has_rows_ || backend_.has_value())) return;
    for (size_t i = 0; i < ip_counts_.size(); ++i) {
      if (ip_counts_[i] == 0) {
        Fault(lines_->LineOf(i, "ips"), HostText(i, "has no address, which the ring needs"));
      } else if (ip_counts_[i] != ip_counts_[0]) {
        Fault(lines_->LineOf(i, "ips"),
              absl::StrCat("host ", i, " has ", ip_counts_[i], " addresses, host 0 has ",
                           ip_counts_[0], ": the ring needs the same number"));
      }
    }
  }

  const std::string& text_;
  const std::span<const HostSystem> systems_;
  json document_, hosts_;
  std::optional<HostLines> lines_;
  std::optional<MlxBackend> backend_;
  std::vector<size_t> ip_counts_, without_row_;
  std::vector<std::vector<size_t>> counts_;  // devices of each cell; an empty row: not readable
  std::vector<std::string> unchecked_;
  std::vector<std::string> missing_pairs_;
  bool has_rows_ = false;
  std::vector<HostfileFault> faults_;
};

}  // namespace

std::vector<HostfileFault> CheckHostfile(const std::string& text,
                                         std::span<const HostSystem> systems,
                                         std::vector<std::string>* unchecked) {
  Checker checker(text, systems);
  std::vector<HostfileFault> faults = checker.Check();
  if (unchecked != nullptr) *unchecked = checker.TakeUnchecked();
  std::stable_sort(faults.begin(), faults.end(),
                   [](const HostfileFault& a, const HostfileFault& b) { return a.line < b.line; });
  return faults;
}

}  // namespace macrame::transport
