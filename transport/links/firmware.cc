#include "transport/links/firmware.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/reasons.h"

namespace macrame::transport {
namespace {

constexpr size_t kFirmwareBytesMax = 64;

// "13822.81.10" → its numbers; none of a text of another form.
std::vector<uint32_t> NumbersOf(const std::string& firmware) {
  std::vector<uint32_t> numbers;
  if (firmware.size() > kFirmwareBytesMax ||
      firmware.find_first_not_of("0123456789.") != firmware.npos) {
    return {};
  }
  for (const absl::string_view part : absl::StrSplit(firmware, '.')) {
    if (!absl::SimpleAtoi(part, &numbers.emplace_back())) return {};
  }
  while (!numbers.empty() && numbers.back() == 0) numbers.pop_back();  // "2.0" is "2"
  return numbers;
}

struct Known {
  const v1::LinkFacts* facts;
  std::vector<uint32_t> firmware;
};

bool MayCompare(const v1::LinkFacts& facts) {
  return facts.is_mac() == v1::FACT_YES && facts.is_virtual_machine() != v1::FACT_YES &&
         !facts.machine_model().empty() && !facts.os_build().empty();
}

v1::Reason Older(const v1::LinkFacts& old, const v1::LinkFacts& other) {
  v1::Reason reason =
      MakeReason(reasons::kFirmwareOld,
                 absl::StrCat(old.hostname(), ": its system firmware ", old.system_firmware(),
                              " is older than ", other.system_firmware(), " of ", other.hostname(),
                              ", which is the same model (", old.machine_model(),
                              ") with the same build of macOS (", old.os_build(), ")"),
                 old.node_id());
  reason.set_evidence(absl::StrCat("boot_rom_version: ", old.system_firmware(), "; ",
                                   other.hostname(), ": ", other.system_firmware()));
  return reason;
}

}  // namespace

std::vector<v1::Reason> OldFirmware(std::span<const v1::LinkFacts* const> nodes) {
  std::vector<Known> known;
  // By model and build.
  std::map<std::pair<std::string, std::string>, Known> newest;
  for (const v1::LinkFacts* facts : nodes) {
    if (!MayCompare(*facts)) continue;
    Known node{facts, NumbersOf(facts->system_firmware())};
    if (node.firmware.empty()) continue;
    Known& best =
        newest.try_emplace({facts->machine_model(), facts->os_build()}, node).first->second;
    if (best.firmware < node.firmware) best = node;
    known.push_back(std::move(node));
  }
  std::vector<v1::Reason> old;
  for (const Known& node : known) {
    const Known& best = newest.at({node.facts->machine_model(), node.facts->os_build()});
    if (node.firmware < best.firmware) old.push_back(Older(*node.facts, *best.facts));
  }
  return old;
}

}  // namespace macrame::transport
