#include "agentd/cores/node_marks.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

bool IsWord(std::string_view text, std::string_view also) {
  return text.size() <= kLabelBytesMax && std::all_of(text.begin(), text.end(), [&](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  also.find(c) != std::string_view::npos;
         });
}

absl::Status Refuse(const std::string& what, const std::string& text, const char* characters) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                      absl::StrCat(what, " '", text.substr(0, kLabelBytesMax), "' is not ",
                                   characters, ", ", kLabelBytesMax, " at most"));
}

// As a key's tenant may be (api_key.cc): one line of text.
bool IsTenant(const std::string& text) {
  return text.size() <= kTenantBytesMax && std::none_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_iscntrl(static_cast<unsigned char>(c));
         });
}

}  // namespace

absl::StatusOr<MarksChange> DecideMarks(const v1::MarkNodeRequest& request,
                                        const v1::NodeMarks* present) {
  std::map<std::string, std::string> labels;
  if (present != nullptr) {
    for (const v1::NodeLabel& label : present->labels()) labels[label.key()] = label.value();
  }
  for (const std::string& key : request.removed()) labels.erase(key);
  for (const v1::NodeLabel& label : request.labels()) {
    if (label.key().empty() || !IsWord(label.key(), "._-/")) {
      return Refuse("the label's key", label.key(), "letters, digits, '.', '_', '-' and '/'");
    }
    if (!IsWord(label.value(), "._-")) {
      return Refuse("the label's value", label.value(), "letters, digits, '.', '_' and '-'");
    }
    labels[label.key()] = label.value();
  }
  if (labels.size() > static_cast<size_t>(kLabelsMax)) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                        absl::StrCat("a node has at most ", kLabelsMax, " labels"));
  }
  if (!IsTenant(request.tenant())) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                        absl::StrCat("a tenant is a line of at most ", kTenantBytesMax, " bytes"));
  }
  v1::NodeMarks marks;
  marks.set_node_id(request.node_id());
  const std::string before = present == nullptr ? "" : present->tenant();
  marks.set_tenant(request.has_tenant() ? request.tenant() : before);
  for (const auto& [key, value] : labels) {
    v1::NodeLabel& label = *marks.add_labels();
    label.set_key(key);
    label.set_value(value);
  }
  MarksChange change;
  const bool has_some = !marks.tenant().empty() || !labels.empty();
  if (has_some) change.value = marks.SerializeAsString();
  const std::string now = present == nullptr ? "" : present->SerializeAsString();
  change.response.set_changed(change.value != now);
  *change.response.mutable_marks() = std::move(marks);
  return change;
}

}  // namespace macrame::agentd
