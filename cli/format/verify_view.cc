#include "cli/format/verify_view.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/format/cluster_view.h"
#include "cli/format/reason_text.h"
#include "cli/format/table.h"
#include "proto/bytes.h"
#include "proto/reason_codes.h"

namespace macrame::cli {
namespace {

// Files are named up to here in a command to fetch them again.
constexpr size_t kFetchedMax = 8;

absl::string_view WordOf(v1::ModelFileState state) {
  switch (state) {
    case v1::MODEL_FILE_STATE_AS_DOWNLOADED:
      return "as downloaded";
    case v1::MODEL_FILE_STATE_ALIKE:
      return "alike on other nodes";
    case v1::MODEL_FILE_STATE_READ:
      return "with nothing to compare";
    case v1::MODEL_FILE_STATE_MISSING:
      return "missing";
    case v1::MODEL_FILE_STATE_TRUNCATED:
      return "truncated";
    case v1::MODEL_FILE_STATE_ALTERED:
      return "altered";
    case v1::MODEL_FILE_STATE_DIFFERS:
      return "different on other nodes";
    case v1::MODEL_FILE_STATE_UNREADABLE:
      return "unreadable";
    default:
      return "not looked at";
  }
}

Cell ResultOf(const v1::NodeModelFiles& node) {
  if (HasNoSuchModel(node)) return Cell("does not have it", Tone::kDim);
  if (node.has_failure()) return Cell("not read", Tone::kBad);
  std::map<v1::ModelFileState, int> counts;
  bool bad = node.has_broken();
  for (const v1::ModelFile& file : node.files()) {
    ++counts[file.state()];
    bad |= IsBad(file);
  }
  std::vector<std::string> words;
  for (const auto& [state, count] : counts)
    words.push_back(absl::StrCat(count, " ", WordOf(state)));
  return Cell(absl::StrJoin(words, ", "), bad ? Tone::kBad : Tone::kGood);
}

std::string Faults(const v1::NodeModelFiles& node, const std::string& name, const Style& style) {
  std::string out;
  const auto add = [&](absl::string_view what, const std::string& why) {
    absl::StrAppend(&out, "  ", Printable(name), ": ", what, why.empty() ? "" : ": ",
                    Printable(why), "\n");
  };
  if (node.has_failure() && !HasNoSuchModel(node)) {
    add(style.Bad("not read"), ReasonSentence(node.failure()));
  }
  for (const v1::ModelFile& file : node.files()) {
    if (!IsBad(file)) continue;
    add(absl::StrCat(Printable(file.name()), " is ", style.Bad(std::string(WordOf(file.state())))),
        file.note());
  }
  if (node.has_broken()) add(style.Bad("can't be loaded"), ReasonSentence(node.broken()));
  return out;
}

// A word that a shell takes as it stands.
bool IsPlainWord(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-' || c == '/';
  });
}

// Of a model that is named like a repository of Hugging Face's: what fetches the bad files anew.
std::string FetchHint(const v1::NodeModelFiles& node, const std::string& name) {
  std::vector<std::string> files;
  for (const v1::ModelFile& file : node.files()) {
    if (IsBad(file) && file.state() != v1::MODEL_FILE_STATE_DIFFERS) files.push_back(file.name());
  }
  if (files.empty()) return "";
  const bool is_plain = IsPlainWord(node.model()) && IsPlainWord(node.path()) &&
                        std::all_of(files.begin(), files.end(), IsPlainWord);
  const bool is_repository = is_plain && node.model().rfind('/', 0) != 0 &&
                             std::count(node.model().begin(), node.model().end(), '/') == 1;
  std::string what = absl::StrCat("fetch the files named above again, into ", node.path());
  if (is_repository) {
    const bool in_cache = node.path().find("models--") != std::string::npos;
    const bool are_few = files.size() <= kFetchedMax;
    what = absl::StrCat(
        "hf download ", node.model(), are_few ? " " : "", are_few ? absl::StrJoin(files, " ") : "",
        in_cache ? "" : absl::StrCat(" --local-dir ", node.path()), " --force-download");
  }
  return absl::StrCat("  on ", Printable(name), ": ", Printable(what), "\n");
}

}  // namespace

bool IsBad(const v1::ModelFile& file) {
  return file.state() >= v1::MODEL_FILE_STATE_MISSING ||
         file.state() == v1::MODEL_FILE_STATE_UNSPECIFIED;
}

bool HasNoSuchModel(const v1::NodeModelFiles& node) {
  return node.has_failure() && node.failure().code() == reasons::kModelNotFound;
}

std::string VerifyProgressLine(const v1::ModelVerification& progress) {
  uint64_t read = 0, total = 0;
  int nodes = 0;
  for (const v1::NodeModelFiles& node : progress.nodes()) {
    if (node.bytes_total() == 0) continue;
    ++nodes;
    read += node.bytes_read();
    total += node.bytes_total();
  }
  if (total == 0) return "looking for the model's files";
  return absl::StrFormat(
      "reading on %d node%s: %.0f %% of %s", nodes, nodes == 1 ? "" : "s",
      100.0 * static_cast<double>(std::min(read, total)) / static_cast<double>(total),
      FormatBytes(Bytes(total)));
}

std::string VerifyView(const v1::ModelVerification& verification, const v1::ClusterStatus& status,
                       int width, const Style& style) {
  std::vector<std::vector<Cell>> rows;
  std::string faults, hints;
  for (const v1::NodeModelFiles& node : verification.nodes()) {
    const std::string name = NodeName(status, node.node_id());
    const bool was_read = !node.has_failure();
    rows.push_back({name, was_read ? absl::StrCat(node.files_size()) : "-",
                    was_read ? FormatBytes(Bytes(node.bytes_read())) : "-", ResultOf(node)});
    faults += Faults(node, name, style);
    hints += FetchHint(node, name);
  }
  std::string out = RenderTable({{"NODE", false, 8}, {"FILES", true}, {"READ", true}, {"RESULT"}},
                                rows, width, style);
  if (!faults.empty()) absl::StrAppend(&out, "\n", faults);
  if (!hints.empty()) absl::StrAppend(&out, "\nNext:\n", hints);
  return out;
}

}  // namespace macrame::cli
