#include "cli/format/profile_view.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/format/table.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace macrame::cli {
namespace {

// "top_p 0.95", in the order of the fields.
void AddSampling(const v1::Sampling& sampling, std::vector<std::string>* parts) {
  using google::protobuf::FieldDescriptor;
  std::vector<const FieldDescriptor*> fields;
  sampling.GetReflection()->ListFields(sampling, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      parts->push_back(absl::StrCat(std::string(field->name()), " ",
                                    sampling.GetReflection()->GetDouble(sampling, field)));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
      parts->push_back(absl::StrCat(std::string(field->name()), " ",
                                    sampling.GetReflection()->GetUInt32(sampling, field)));
    }
  }
}

std::string Length(uint32_t seconds) {
  if (seconds % 3600 == 0) return absl::StrCat(seconds / 3600, " h");
  if (seconds % 60 == 0) return absl::StrCat(seconds / 60, " min");
  return absl::StrCat(seconds, " s");
}

std::string PartsOf(const v1::ModelProfile& profile) {
  std::vector<std::string> parts;
  AddSampling(profile.sampling(), &parts);
  const v1::ReasoningOptions& reasoning = profile.reasoning();
  if (reasoning.has_enabled())
    parts.push_back(reasoning.enabled() ? "thinking on" : "thinking off");
  if (reasoning.has_tokens_max()) {
    parts.push_back(absl::StrCat("thinking_tokens ", reasoning.tokens_max()));
  }
  if (!profile.template_arguments_json().empty()) {
    parts.push_back(absl::StrCat("template ", Printable(profile.template_arguments_json())));
  }
  if (profile.max_tokens() > 0) parts.push_back(absl::StrCat("max_tokens ", profile.max_tokens()));
  for (const std::string& alias : profile.aliases()) {
    parts.push_back(absl::StrCat("alias ", Printable(alias)));
  }
  if (profile.pinned()) parts.emplace_back("pinned");
  if (profile.has_idle_unload_s()) {
    parts.push_back(profile.idle_unload_s() == 0
                        ? "never unloaded for want of use"
                        : absl::StrCat("unloaded after ", Length(profile.idle_unload_s()),
                                       " without a request"));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace

std::string ProfileLine(const std::string& model, const v1::ModelProfile* profile) {
  const std::string parts = profile == nullptr ? "" : PartsOf(*profile);
  return absl::StrCat(Printable(model), ": ", parts.empty() ? "no profile" : parts, "\n");
}

std::string ProfilesView(const v1::ListProfilesResponse& profiles, int width, const Style& style) {
  if (profiles.profiles().empty()) {
    return "No model has a profile. 'clusterctl model profile NAME --help' says what one holds.\n";
  }
  std::vector<std::vector<Cell>> rows;
  for (const v1::ModelProfile& profile : profiles.profiles()) {
    rows.push_back({Printable(profile.model()), PartsOf(profile)});
  }
  return RenderTable({{"MODEL", false, 8, 10}, {"PROFILE", false, 10, 20}}, rows, width, style);
}

}  // namespace macrame::cli
