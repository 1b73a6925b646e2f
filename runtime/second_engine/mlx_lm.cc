#include "runtime/second_engine/mlx_lm.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/reasons.h"
#include "runtime/second_engine/worker_process.h"
#include "runtime/second_engine/worker_script.h"

namespace macrame::runtime {
namespace {

constexpr size_t kArchitecturesMax = 4096;
constexpr size_t kCandidatesMax = 16;

// An installation of Apple's developer tools is offered, on the screen, to whoever runs it.
#ifdef __APPLE__
constexpr bool kSystemPythonMayAsk = true;
#else
constexpr bool kSystemPythonMayAsk = false;
#endif
constexpr char kSystemPython[] = "/usr/bin/python3";

absl::Status Garbled(const std::string& python) {
  return ReasonStatus(
      absl::StatusCode::kInternal, reasons::kEngineFailed,
      absl::StrCat("the mlx-lm worker of ", python, " gave an answer that can't ", "be read"));
}

std::string TextOf(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool IsTrue(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

}  // namespace

absl::StatusOr<MlxLm> AskMlxLm(const std::string& python, std::chrono::milliseconds limit,
                               const std::atomic<bool>* stop) {
  auto worker = WorkerProcess::Start(python, kMlxLmWorkerScript, /*shows_errors=*/false);
  if (!worker.ok()) return worker.status();
  (*worker)->StopWith(stop);
  const auto hello = (*worker)->Receive(limit);
  if (!hello.ok()) return hello.status();
  const auto who = nlohmann::json::parse(hello->payload, nullptr, false);
  if (hello->kind != 'H' || !who.is_object()) return Garbled(python);
  MlxLm found;
  found.python = python;
  found.version = TextOf(who, "version");
  found.device = TextOf(who, "device");
  const absl::Status asked = (*worker)->Send('D', "");
  if (!asked.ok()) return asked;
  const auto answer = (*worker)->Receive(limit);
  if (!answer.ok()) return answer.status();
  const auto types = nlohmann::json::parse(answer->payload, nullptr, false);
  if (answer->kind != 'D' || !types.is_object() || types.size() > kArchitecturesMax) {
    return Garbled(python);
  }
  for (const auto& [name, ways] : types.items()) {
    if (!ways.is_object()) return Garbled(python);
    v1::ServedSplits& splits = found.architectures[name];
    splits.set_tensor(IsTrue(ways, "tensor"));
    splits.set_pipeline(IsTrue(ways, "pipeline"));
  }
  return found;
}

std::vector<std::string> PythonCandidates(const std::string& configured, const std::string& path,
                                          const std::string& home) {
  if (!configured.empty()) return {configured};
  std::vector<std::string> places;
  if (!home.empty()) places.push_back(absl::StrCat(home, "/.macrame/mlx-lm/bin/python3"));
  for (const auto folder : absl::StrSplit(path, ':', absl::SkipEmpty())) {
    places.push_back(absl::StrCat(folder, "/python3"));
  }
  for (const char* usual : {"/opt/homebrew/bin/python3", "/usr/local/bin/python3", kSystemPython}) {
    places.emplace_back(usual);
  }
  std::vector<std::string> candidates;
  std::set<std::string> seen;
  for (const std::string& place : places) {
    if (place.front() != '/' || (kSystemPythonMayAsk && place == kSystemPython)) continue;
    // A folder by its two names, /bin and /usr/bin; but not what python3 leads to: an environment
    // of its own leads to the system's.
    std::error_code error;
    const auto folder =
        std::filesystem::weakly_canonical(std::filesystem::path(place).parent_path(), error);
    if (!error && seen.insert(folder.string()).second && candidates.size() < kCandidatesMax)
      candidates.push_back(place);
  }
  return candidates;
}

SecondEngine FindMlxLm(const std::string& configured, const std::atomic<bool>* stop) {
  const char* path = std::getenv("PATH");
  const char* home = std::getenv("HOME");
  SecondEngine engine;
  std::vector<std::string> lacking;
  for (const std::string& python :
       PythonCandidates(configured, path == nullptr ? "" : path, home == nullptr ? "" : home)) {
    if (stop != nullptr && stop->load()) break;
    if (configured.empty() && access(python.c_str(), X_OK) != 0) continue;
    auto found = AskMlxLm(python, kWorkerStartLimit, stop);
    if (found.ok()) {
      engine.mlx_lm = *std::move(found);
      engine.why_not.clear();
      return engine;
    }
    lacking.push_back(ReasonOf(found.status()).message());
  }
  engine.why_not = lacking.empty() ? "there is no python3 on this node"
                                   : std::string(absl::StrJoin(lacking, "; "));
  return engine;
}

}  // namespace macrame::runtime
