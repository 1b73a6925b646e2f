#pragma once

// Collects why facts are missing, for Inventory.unknown. Pure.

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "discovery/probe/command_runner.h"
#include "macrame/v1/node.pb.h"
#include "proto/reasons.h"
#include "proto/utf8.h"

namespace macrame::discovery {

class UnknownFacts {
 public:
  explicit UnknownFacts(v1::Inventory& inventory) : inventory_(inventory) {}

  // `fact` is the field's name: "gpu_cores".
  void Add(std::string_view code, const std::string& fact, const std::string& why,
           const std::string& evidence = "") {
    v1::Reason reason = MakeReason(code, absl::StrCat(fact, ": ", why), inventory_.node_id());
    reason.set_evidence(AsUtf8(CutToBytes(evidence, kEvidenceBytesMax), "?"));
    *inventory_.add_unknown() = reason;
  }

  // `what the command said` can't be used: picks the code that fits.
  void AddCommand(const std::string& fact, const Command& command, const CommandResult& result) {
    std::string_view code = reasons::kCommandFailed;
    std::string why = DescribeOutcome(command, result);
    if (result.outcome == CommandOutcome::kNotFound) {
      code = reasons::kCommandMissing;
    } else if (result.outcome == CommandOutcome::kTimedOut) {
      code = reasons::kCommandTimedOut;
    } else if (result.Succeeded()) {
      code = reasons::kOutputUnreadable;
      why = "its output does not tell";
    }
    Add(code, fact, absl::StrCat(CommandLine(command), ": ", why),
        result.out.substr(0, result.out.find('\n')));
  }

 private:
  static constexpr size_t kEvidenceBytesMax = 200;

  v1::Inventory& inventory_;
};

}  // namespace macrame::discovery
