#include "agentd/cores/model_integrity.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/ids.h"
#include "proto/reason_codes.h"

namespace macrame::agentd {
namespace {

constexpr size_t kDigitsTold = 12;  // of a checksum; enough to tell two apart

// One file as the nodes that have the model have it.
struct Copies {
  std::vector<std::pair<const v1::NodeModelFiles*, v1::ModelFile*>> held;
  std::vector<v1::NodeModelFiles*> lacking;
};

bool IsWhole(const v1::ModelFile& file) {
  return file.state() == v1::MODEL_FILE_STATE_AS_DOWNLOADED ||
         file.state() == v1::MODEL_FILE_STATE_READ;
}

std::string Short(const std::string& sha256) { return sha256.substr(0, kDigitsTold); }

// Whether fewer bytes than others have mean that it was cut short. A safetensors file was held to
// its own header where it was read, and texts are edited more often than cut.
bool IsCutWhenShorter(const std::string& name) {
  constexpr std::string_view kOthers[] = {".safetensors", ".json", ".jinja", ".txt"};
  return std::none_of(std::begin(kOthers), std::end(kOthers),
                      [&](std::string_view ending) { return name.ends_with(ending); });
}

// The copy that the others are held to; null: there is none.
const v1::ModelFile* Reference(const Copies& copies, std::string* whose) {
  std::map<std::string, int> votes;
  int whole = 0;
  for (const auto& [node, file] : copies.held) {
    if (file->state() == v1::MODEL_FILE_STATE_AS_DOWNLOADED) {
      *whose = absl::StrCat("as downloaded on ", ShortId(NodeId(node->node_id())));
      return file;
    }
    whole += IsWhole(*file);
    if (IsWhole(*file)) ++votes[file->sha256()];
  }
  for (const auto& [node, file] : copies.held) {
    const int own = IsWhole(*file) ? votes[file->sha256()] : 0;
    if (own < 2 || own * 2 <= whole) continue;
    *whose = absl::StrCat("on ", own, " of ", whole, " nodes");
    return file;
  }
  return nullptr;
}

bool AreOfDifferentRevisions(const Copies& copies) {
  std::set<std::string> downloaded;
  for (const auto& [node, file] : copies.held) {
    if (file->state() == v1::MODEL_FILE_STATE_AS_DOWNLOADED) downloaded.insert(file->sha256());
  }
  return downloaded.size() > 1;
}

void MarkDiffering(const Copies& copies, const std::string& why) {
  for (const auto& [node, file] : copies.held) {
    if (!IsWhole(*file)) continue;
    file->set_state(v1::MODEL_FILE_STATE_DIFFERS);
    file->set_note(absl::StrCat("SHA-256 ", Short(file->sha256()), "…: ", why));
  }
}

void JudgeCopies(const Copies& copies) {
  if (AreOfDifferentRevisions(copies)) {
    return MarkDiffering(copies, "these nodes downloaded different revisions of the model");
  }
  std::string whose;
  const v1::ModelFile* right = Reference(copies, &whose);
  if (right == nullptr) {
    std::set<std::string> kinds;
    for (const auto& [node, file] : copies.held) {
      if (IsWhole(*file)) kinds.insert(file->sha256());
    }
    if (kinds.size() > 1)
      MarkDiffering(copies, "nodes have different ones; nothing says which is right");
    return;
  }
  for (const auto& [node, file] : copies.held) {
    if (file->state() != v1::MODEL_FILE_STATE_READ) continue;
    if (file->sha256() == right->sha256()) {
      file->set_state(v1::MODEL_FILE_STATE_ALIKE);
    } else if (file->bytes() < right->bytes() && IsCutWhenShorter(file->name())) {
      file->set_state(v1::MODEL_FILE_STATE_TRUNCATED);
      file->set_note(
          absl::StrCat("it has ", file->bytes(), " of ", right->bytes(), " bytes, ", whose));
    } else {
      file->set_state(v1::MODEL_FILE_STATE_ALTERED);
      file->set_note(absl::StrCat("SHA-256 ", Short(file->sha256()), "…, ", whose, " ",
                                  Short(right->sha256()), "…"));
      if (file->bytes() != right->bytes()) {
        absl::StrAppend(file->mutable_note(), "; it has ", file->bytes(), " bytes, there ",
                        right->bytes());
      }
    }
  }
}

std::map<std::string, Copies> CopiesByName(v1::ModelVerification& verification) {
  std::map<std::string, Copies> all;
  for (v1::NodeModelFiles& node : *verification.mutable_nodes()) {
    for (v1::ModelFile& file : *node.mutable_files()) {
      all[file.name()].held.emplace_back(&node, &file);
    }
  }
  for (auto& [name, copies] : all) {
    for (v1::NodeModelFiles& node : *verification.mutable_nodes()) {
      const bool holds = std::any_of(copies.held.begin(), copies.held.end(),
                                     [&](const auto& held) { return held.first == &node; });
      if (!holds && !node.files().empty()) copies.lacking.push_back(&node);
    }
  }
  return all;
}

bool HasPassed(const v1::NodeModelFiles& node) {
  if (node.has_failure()) return node.failure().code() == reasons::kModelNotFound;
  return !node.has_broken() &&
         std::none_of(node.files().begin(), node.files().end(), [](const v1::ModelFile& file) {
           return file.state() >= v1::MODEL_FILE_STATE_MISSING ||
                  file.state() == v1::MODEL_FILE_STATE_UNSPECIFIED;
         });
}

}  // namespace

void JudgeModelFiles(v1::ModelVerification& verification) {
  // No file is added while there are pointers to others.
  std::vector<std::pair<v1::NodeModelFiles*, std::string>> missing;
  for (const auto& [name, copies] : CopiesByName(verification)) {
    JudgeCopies(copies);
    for (v1::NodeModelFiles* node : copies.lacking) missing.emplace_back(node, name);
  }
  for (const auto& [node, name] : missing) {
    v1::ModelFile& file = *node->add_files();
    file.set_name(name);
    file.set_state(v1::MODEL_FILE_STATE_MISSING);
    file.set_note("other nodes have it");
  }
  bool anybody = false;
  bool passed = true;
  for (v1::NodeModelFiles& node : *verification.mutable_nodes()) {
    std::sort(node.mutable_files()->begin(), node.mutable_files()->end(),
              [](const v1::ModelFile& a, const v1::ModelFile& b) { return a.name() < b.name(); });
    anybody |= !node.files().empty();
    passed &= HasPassed(node);
  }
  verification.set_passed(anybody && passed);
}

}  // namespace macrame::agentd
