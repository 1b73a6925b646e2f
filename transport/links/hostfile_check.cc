// Reading host files of mlx.launch as strictly as they should be: what it would refuse, and what it
// takes and then stalls on.

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "transport/links/ipv4.h"
#include "transport/links/mlx_settings.h"

namespace macrame::transport {
namespace {

using nlohmann::json;

constexpr size_t kFileBytesMax = 1 << 20;
constexpr size_t kHostsMax = 1024;

int LineAt(const std::string& text, size_t offset) {
  const size_t end = std::min(offset, text.size());
  return 1 + static_cast<int>(
                 std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
}

// On which line each host begins, and each of its keys. A scan of the text's own structure, because
// the parser keeps no positions; only used on text that parsed.
class HostLines {
 public:
  explicit HostLines(const std::string& text) {
    const bool is_list = FirstMark(text) == '[';
    const int host_depth = is_list ? 2 : 3;
    int depth = 0, line = 1;
    bool in_hosts = is_list;
    std::string word;
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '\n') ++line;
      if (c == '"') {
        word = ReadString(text, &i, &line);
        if (depth == 1 && !is_list && word == "hosts") in_hosts = true;
        if (depth == host_depth && in_hosts && !hosts_.empty()) {
          hosts_.back().keys.emplace(word, line);
        }
      } else if (c == '[' || c == '{') {
        ++depth;
        if (c == '{' && depth == host_depth && in_hosts) hosts_.push_back({line, {}});
      } else if (c == ']' || c == '}') {
        if (depth == host_depth - 1 && c == ']') in_hosts = in_hosts && is_list;
        --depth;
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

  std::vector<Host> hosts_;
};

class Checker {
 public:
  explicit Checker(const std::string& text) : text_(text) {}

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
    return std::move(faults_);
  }

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
    static const std::set<std::string> backends = {"",     "ring",  "mpi",
                                                   "nccl", "jaccl", "jaccl-ring"};
    const auto backend = document_.find("backend");
    if (backend != document_.end()) {
      if (!backend->is_string() || !backends.contains(backend->get<std::string>())) {
        Fault(TopLine("backend"), "\"backend\" must be ring, jaccl, jaccl-ring, mpi or nccl");
      } else {
        backend_ = backend->get<std::string>();
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
    if (row == host.end() || (row->is_array() && row->empty())) {
      without_row_.push_back(i);
      return;
    }
    has_rows_ = true;
    if (!row->is_array() || row->size() != hosts_.size()) {
      return Fault(line, absl::StrCat("host ", i, ": \"rdma\" must have one entry for each of the ",
                                      hosts_.size(), " hosts"));
    }
    for (size_t j = 0; j < row->size(); ++j) CheckCell(i, j, (*row)[j], line);
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
    const size_t here = cell.is_null() ? 0 : is_list ? cell.size() : 1;
    const size_t there = other[i].is_null() ? 0 : other[i].is_array() ? other[i].size() : 1;
    if (here != there) {
      Fault(line, absl::StrCat("hosts ", i, " and ", j, " name ", here, " and ", there,
                               " devices for the cables between them"));
    }
    if (here == 0) missing_pairs_.push_back(absl::StrCat(i, " - ", j));
  }

  void CheckBackend() {
    const bool is_jaccl = backend_ == "jaccl" || backend_ == "jaccl-ring";
    if (has_rows_ || is_jaccl) {
      for (const size_t i : without_row_) {
        Fault(lines_->LineOf(i, "rdma"), HostText(i, "has no \"rdma\" row"));
      }
      if (ip_counts_.empty() || ip_counts_[0] == 0) {
        Fault(lines_->LineOf(0, "ips"),
              "host 0 has no address: rank 0 needs one that every other host reaches");
      }
    }
    if (backend_ == "jaccl" && !missing_pairs_.empty()) {
      Fault(lines_->LineOf(0, "rdma"),
            absl::StrCat("no device for hosts ", missing_pairs_[0],
                         ": \"jaccl\" needs a mesh; \"jaccl-ring\" does with neighbours"));
    }
    if (backend_ != "ring" && (has_rows_ || !backend_.empty())) return;
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
  json document_, hosts_;
  std::optional<HostLines> lines_;
  std::string backend_;
  std::vector<size_t> ip_counts_, without_row_;
  std::vector<std::string> missing_pairs_;
  bool has_rows_ = false;
  std::vector<HostfileFault> faults_;
};

}  // namespace

std::vector<HostfileFault> CheckHostfile(const std::string& text) {
  std::vector<HostfileFault> faults = Checker(text).Check();
  std::stable_sort(faults.begin(), faults.end(),
                   [](const HostfileFault& a, const HostfileFault& b) { return a.line < b.line; });
  return faults;
}

}  // namespace macrame::transport
