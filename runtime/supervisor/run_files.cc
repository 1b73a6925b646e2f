#include "runtime/supervisor/run_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "transport/gang/secret_bytes.h"

namespace macrame::runtime {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNoteBytesMax = 16 << 10;
constexpr int kLeftoversMax = 4096;
constexpr size_t kLogNameBytesMax = 48;

absl::Status WritePrivate(const std::string& path, const std::string& bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    return absl::UnavailableError(absl::StrCat("can't write ", path, ": ", std::strerror(errno)));
  }
  fchmod(fd, 0600);  // of a file that was there
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = write(fd, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<size_t>(written);
  }
  const int error = errno;
  close(fd);
  if (done == bytes.size()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("can't write ", path, ": ", std::strerror(error)));
}

std::string SafeName(const std::string& text) {
  std::string safe = text.substr(0, kLogNameBytesMax);
  for (char& c : safe) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_') c = '_';
  }
  return safe;
}

// None where it names no process for certain.
std::optional<RunNote> NoteOf(const nlohmann::json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto field = [&](const char* name) { return json.value(name, nlohmann::json()); };
  const auto pid = field("pid"), identity = field("identity"), deployment = field("deployment");
  if (!pid.is_number_unsigned() || !identity.is_string()) return std::nullopt;
  if (pid.get<uint64_t>() > uint64_t{std::numeric_limits<pid_t>::max()}) return std::nullopt;
  RunNote note;
  note.pid = pid.get<pid_t>();
  note.identity = identity.get<std::string>();
  if (deployment.is_string()) note.deployment = deployment.get<std::string>();
  if (field("epoch").is_number_unsigned()) note.epoch = field("epoch").get<uint64_t>();
  if (field("rank").is_number_unsigned()) note.rank = field("rank").get<uint32_t>();
  return note;
}

}  // namespace

RunFiles::RunFiles(std::string state_folder) : state_folder_(std::move(state_folder)) {}

absl::Status RunFiles::Prepare() const {
  for (const char* name : {"/ranks", "/logs"}) {
    const std::string folder = state_folder_ + name;
    std::error_code error;
    fs::create_directories(folder, error);
    if (error || chmod(folder.c_str(), 0700) != 0) {
      return absl::UnavailableError(absl::StrCat("can't make the folder ", folder));
    }
  }
  return absl::OkStatus();
}

RunPaths RunFiles::PathsOf(uint64_t serial, const std::string& deployment, uint32_t rank) const {
  const std::string base = absl::StrCat(state_folder_, "/ranks/", getpid(), "-", serial);
  const std::string log =
      absl::StrCat(state_folder_, "/logs/", SafeName(deployment), "-rank", rank);
  return {base + ".spec", base + ".sock", base + ".json", log + ".log", log + ".stacks.txt"};
}

absl::Status RunFiles::WriteSpec(const std::string& path, const v1::LaunchSpec& spec) const {
  std::string bytes = spec.SerializeAsString();
  absl::Status written = WritePrivate(path, bytes);
  transport::Wipe(bytes);  // the gang's secret is in it
  return written;
}

absl::Status RunFiles::WriteNote(const std::string& path, const RunNote& note) const {
  const nlohmann::json json = {{"pid", note.pid},
                               {"identity", note.identity},
                               {"deployment", note.deployment},
                               {"epoch", note.epoch},
                               {"rank", note.rank}};
  return WritePrivate(path, json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void RunFiles::Remove(const RunPaths& paths) const {
  for (const std::string* path : {&paths.spec, &paths.socket, &paths.note}) unlink(path->c_str());
}

std::vector<RunNote> RunFiles::TakeLeftovers() const {
  std::vector<RunNote> notes;
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(state_folder_ + "/ranks", error), end;
       !error && it != end && paths.size() < kLeftoversMax; it.increment(error)) {
    paths.push_back(it->path());
  }
  for (const fs::path& path : paths) {
    if (path.extension() == ".json" && fs::file_size(path, error) <= kNoteBytesMax && !error) {
      std::ifstream file(path);
      const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
      if (auto note = NoteOf(json); note.has_value()) notes.push_back(*std::move(note));
    }
    unlink(path.c_str());
  }
  return notes;
}

}  // namespace macrame::runtime
