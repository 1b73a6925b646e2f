#include "agentd/gateway/access/known_models.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/operation.pb.h"
#include "proto/reasons.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr absl::string_view kUnnamed = "another tenant's model";
constexpr absl::string_view kUnnamedTenant = "another tenant";
constexpr absl::string_view kModelEvents = "model";
// The label of what is counted without a key (agentd/metrics/metric_names.h).
constexpr absl::string_view kNoKey = "none";

std::string DeploymentIn(absl::string_view name) { return DeploymentOfReplica(std::string(name)); }

// Of names of models. A dot or colon may also end a sentence.
bool IsOfName(char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '/'; }

bool BeginsName(absl::string_view text, size_t at) {
  if (at == 0) return true;
  const char before = text[at - 1];
  return !IsOfName(before) && before != '.' && before != ':';
}

bool EndsName(absl::string_view text, size_t end) {
  if (end >= text.size()) return true;
  if (IsOfName(text[end])) return false;
  const bool joins = text[end] == '.' || text[end] == ':';
  return !joins || end + 1 >= text.size() || !IsOfName(text[end + 1]);
}

size_t FindName(absl::string_view text, absl::string_view name, size_t from) {
  for (size_t at = text.find(name, from); at != absl::string_view::npos;
       at = text.find(name, at + 1)) {
    if (BeginsName(text, at) && EndsName(text, at + name.size())) return at;
  }
  return absl::string_view::npos;
}

// Behind the number of a replica, if there is one.
size_t EndOfReplica(absl::string_view text, size_t at) {
  if (at >= text.size() || text[at] != '#') return at;
  size_t end = at + 1;
  while (end < text.size() && absl::ascii_isdigit(text[end])) ++end;
  return end == at + 1 ? at : end;
}

template <typename Typed>
const Typed* As(const Message& message) {
  return message.GetDescriptor() == Typed::descriptor() ? static_cast<const Typed*>(&message)
                                                        : nullptr;
}

// The value of a label in "a=\"x\",b=\"y\"" as it stands there; nullopt: it has none.
std::optional<std::string> LabelOf(absl::string_view labels, absl::string_view name) {
  const std::string begin = absl::StrCat(name, "=\"");
  size_t at = labels.find(begin);
  while (at != absl::string_view::npos && at > 0 && labels[at - 1] != ',') {
    at = labels.find(begin, at + 1);
  }
  if (at == absl::string_view::npos) return std::nullopt;
  std::string value;
  for (size_t i = at + begin.size(); i < labels.size() && labels[i] != '"'; ++i) {
    if (labels[i] == '\\' && i + 1 < labels.size()) ++i;
    value += labels[i];
  }
  return value;
}

// What others' keys are called and how much they ask is told to nobody who does not know all.
bool IsOwnKey(const Principal& principal, const std::string& key) {
  return key == kNoKey || key == principal.key_id;
}

// Whether a page of metrics, in any of its formats, may have figures of keys.
bool TellsOfKeys(const std::string& text) {
  return absl::StrContains(text, "key=\"") || absl::StrContains(text, "\"key\"");
}

}  // namespace

void ModelOwners::Take(std::map<std::string, std::string> tenants) {
  for (const auto& [name, tenant] : tenants) {
    past_[name].insert(tenant);
  }
  present_ = std::move(tenants);
  // What is remembered no more is told of to nobody who does not know all.
  for (auto it = past_.begin(); past_.size() > kPastModelsMax && it != past_.end();) {
    it = present_.contains(it->first) ? std::next(it) : past_.erase(it);
  }
}

KnownModels::KnownModels(Principal principal, std::shared_ptr<const ModelOwners> owners,
                         std::set<std::string> on_disk)
    : principal_(std::move(principal)),
      knows_all_((principal_.scopes & kScopeAdmin) != 0 ||
                 ((principal_.scopes & kScopeOperate) != 0 && principal_.tenant.empty() &&
                  principal_.models.empty())),
      owners_(std::move(owners)),
      on_disk_(std::move(on_disk)) {}

const std::vector<std::string>& KnownModels::Hidden() const {
  if (hidden_.has_value()) return *hidden_;
  hidden_.emplace();
  if (knows_all_ || owners_ == nullptr) return *hidden_;
  for (const auto& [name, tenants] : owners_->past()) {
    if (!IsKnownSeries(name)) hidden_->push_back(name);
  }
  std::sort(hidden_->begin(), hidden_->end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  return *hidden_;
}

// Of one that is there what it is now counts, and else all that it ever was.
bool KnownModels::IsKnownSeries(const std::string& model) const {
  return owners_->present().contains(DeploymentIn(model)) ? Knows(model) : KnowsOf(model);
}

KnownModels KnownModels::All() { return KnownModels(); }

std::string KnownModels::audience() const {
  if (knows_all_) return "";
  return absl::StrCat(principal_.tenant, "\n", absl::StrJoin(principal_.models, "\n"));
}

bool KnownModels::MayUse(absl::string_view name) const {
  if (owners_ == nullptr) return true;
  const std::string deployment = DeploymentIn(name);
  const auto found = owners_->present().find(deployment);
  return MaySee(principal_, deployment, found == owners_->present().end() ? "" : found->second);
}

bool KnownModels::Knows(absl::string_view name) const { return knows_all_ || MayUse(name); }

bool KnownModels::KnowsOf(absl::string_view name) const {
  if (knows_all_ || owners_ == nullptr) return true;
  const std::string deployment = DeploymentIn(name);
  const auto past = owners_->past().find(deployment);
  if (past == owners_->past().end()) {
    return on_disk_.contains(deployment) && MaySee(principal_, deployment, "");
  }
  return std::all_of(past->second.begin(), past->second.end(), [&](const std::string& tenant) {
    return MaySee(principal_, deployment, tenant);
  });
}

std::vector<std::string> KnownModels::Usable() const {
  std::vector<std::string> names;
  if (owners_ == nullptr) return names;
  for (const auto& [name, tenant] : owners_->present()) {
    if (MaySee(principal_, name, tenant)) names.push_back(name);
  }
  return names;
}

bool KnownModels::Mentions(const std::string& text) const {
  const std::vector<std::string>& hidden = Hidden();
  return std::any_of(hidden.begin(), hidden.end(), [&](const std::string& name) {
    return FindName(text, name, 0) != absl::string_view::npos;
  });
}

bool KnownModels::MentionsIn(const v1::Reason& reason) const {
  return Mentions(reason.message()) || Mentions(reason.remedy()) || Mentions(reason.evidence());
}

void KnownModels::Unname(v1::Reason* reason) const {
  reason->set_message(Unnamed(reason->message()));
  reason->set_remedy(Unnamed(reason->remedy()));
  reason->set_evidence(Unnamed(reason->evidence()));
}

std::string KnownModels::Unnamed(const std::string& text) const {
  std::string told = text;
  for (const std::string& name : Hidden()) {
    for (size_t at = FindName(told, name, 0); at != std::string::npos;
         at = FindName(told, name, at + kUnnamed.size())) {
      told.replace(at, EndOfReplica(told, at + name.size()) - at, std::string(kUnnamed));
    }
  }
  return told;
}

// A part of an answer that is left out whole.
bool KnownModels::IsHidden(const Message& message) const {
  if (const auto* status = As<v1::DeploymentStatus>(message)) {
    return !Knows(status->deployment().name());
  }
  if (const auto* wanted = As<v1::Deployment>(message)) return !Knows(wanted->name());
  if (const auto* rank = As<v1::RankStatus>(message)) {
    return !rank->deployment().empty() && !Knows(rank->deployment());
  }
  if (const auto* profile = As<v1::ModelProfile>(message)) return !KnowsOf(profile->model());
  if (const auto* event = As<v1::Event>(message)) {
    return event->kind() == kModelEvents && !KnowsOf(event->subject());
  }
  if (const auto* reason = As<v1::Reason>(message)) return MentionsIn(*reason);
  // What stood there for its deployment alone: no node has files of it.
  if (const auto* entry = As<v1::ModelEntry>(message)) {
    return entry->node_ids_size() == 0 &&
           (!entry->has_deployment() || !Knows(entry->deployment().deployment().name()));
  }
  return false;
}

void KnownModels::FilterText(Message* message) const {
  const auto keep_known = [&](google::protobuf::RepeatedPtrField<std::string>* names) {
    names->erase(std::remove_if(names->begin(), names->end(),
                                [&](const std::string& name) { return !Knows(name); }),
                 names->end());
  };
  if (auto* result = const_cast<v1::PlanResult*>(As<v1::PlanResult>(*message))) {
    keep_known(result->mutable_evicted());
  } else if (auto* paused =
                 const_cast<v1::PauseClusterResponse*>(As<v1::PauseClusterResponse>(*message))) {
    keep_known(paused->mutable_models());
  } else if (auto* marks = const_cast<v1::NodeMarks*>(As<v1::NodeMarks>(*message))) {
    const bool is_others = !marks->tenant().empty() && marks->tenant() != principal_.tenant;
    if (is_others) marks->set_tenant(std::string(kUnnamedTenant));
  } else if (auto* reason = const_cast<v1::Reason*>(As<v1::Reason>(*message))) {
    Unname(reason);
  } else if (auto* rejection = const_cast<v1::Rejection*>(As<v1::Rejection>(*message))) {
    rejection->set_subject(Unnamed(rejection->subject()));
  } else if (auto* event = const_cast<v1::Event*>(As<v1::Event>(*message))) {
    event->set_message(Unnamed(event->message()));
  } else if (auto* metrics =
                 const_cast<v1::GetMetricsResponse*>(As<v1::GetMetricsResponse>(*message))) {
    metrics->set_text(FilterMetrics(metrics->text()));
  }
}

bool KnownModels::IsLeftAlone(const Message& message) {
  return As<v1::GenerateChunk>(message) != nullptr || As<v1::LogsChunk>(message) != nullptr;
}

void KnownModels::Filter(Message* message) const {
  if (knows_all_ || IsLeftAlone(*message)) return;
  FilterText(message);
  const Reflection& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  bool has_lost = false;
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) continue;
    if (!field->is_repeated()) {
      // A lone reason is why something is as it is: it stays, and names nobody.
      Message* part = reflection.MutableMessage(message, field);
      const bool is_reason = As<v1::Reason>(*part) != nullptr;
      if (!is_reason && IsHidden(*part)) {
        reflection.ClearField(message, field);
      } else {
        Filter(part);
      }
      continue;
    }
    int kept = 0;
    const int count = reflection.FieldSize(*message, field);
    for (int i = 0; i < count; ++i) {
      if (IsHidden(reflection.GetRepeatedMessage(*message, field, i))) continue;
      if (kept != i) reflection.SwapElements(message, field, kept, i);
      Filter(reflection.MutableRepeatedMessage(message, field, kept++));
    }
    has_lost = has_lost || kept < count;
    for (int i = kept; i < count; ++i) reflection.RemoveLast(message, field);
  }
  // Nothing that it may know of is amiss.
  if (auto* status = const_cast<v1::ClusterStatus*>(As<v1::ClusterStatus>(*message))) {
    const auto& served = status->deployments();
    const bool all_ready = std::all_of(
        served.begin(), served.end(),
        [](const v1::DeploymentStatus& one) { return one.state() == v1::DEPLOYMENT_STATE_READY; });
    if (has_lost && all_ready && status->problems().empty()) status->set_healthy(true);
  }
}

absl::Status KnownModels::Filter(const absl::Status& status, const std::string& asked) const {
  if (knows_all_ || status.ok() || Hidden().empty()) return status;
  const auto is_asked = [&asked](const std::string& name) {
    return FindName(asked, name, 0) != std::string::npos;
  };
  if (std::any_of(Hidden().begin(), Hidden().end(), is_asked)) {
    KnownModels others = *this;
    std::erase_if(*others.hidden_, is_asked);
    return others.Filter(status);
  }
  v1::Reason reason = ReasonOf(status);
  if (!MentionsIn(reason) && !Mentions(std::string(status.message()))) return status;
  Unname(&reason);
  return ReasonStatus(status.code(), reason);
}

bool KnownModels::KnowsSeries(absl::string_view labels) const {
  for (const absl::string_view name : {"model", "model_name"}) {
    const std::optional<std::string> model = LabelOf(labels, name);
    if (model.has_value() && owners_ != nullptr && !IsKnownSeries(*model)) return false;
  }
  const std::optional<std::string> key = LabelOf(labels, "key");
  return !key.has_value() || IsOwnKey(principal_, *key);
}

// A family whose series are all left out goes with its head, as one that has none yet.
std::string KnownModels::FilterMetrics(const std::string& page) const {
  if (knows_all_ || (Hidden().empty() && !TellsOfKeys(page))) return page;
  if (absl::StartsWith(page, "{")) return FilterJson(page);
  std::string told, head;
  size_t series = 0, kept = 0;
  const auto end_family = [&] {
    if (series == 0) absl::StrAppend(&told, head);
    head.clear();
    series = kept = 0;
  };
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    if (line.empty()) continue;
    if (line[0] == '#') {
      if (series > 0 || absl::StartsWith(line, "# EOF")) end_family();
      absl::StrAppend(&head, line, "\n");
      continue;
    }
    ++series;
    const size_t open = line.find('{'), close = line.rfind('}');
    const bool has_labels = open != absl::string_view::npos && close != absl::string_view::npos;
    if (has_labels && !KnowsSeries(line.substr(open + 1, close - open - 1))) continue;
    if (kept++ == 0) absl::StrAppend(&told, head);
    absl::StrAppend(&told, line, "\n");
  }
  end_family();
  return told;
}

// A sample, or an object that is one's labels.
bool KnownModels::KnowsSample(const nlohmann::ordered_json& sample) const {
  if (!sample.is_object()) return true;
  const bool has_labels = sample.contains("labels");
  const nlohmann::ordered_json& named = has_labels ? sample["labels"] : sample;
  const auto text_of = [&named](const char* field) -> const std::string* {
    const bool is_text = named.is_object() && named.contains(field) && named[field].is_string();
    return is_text ? &named[field].get_ref<const std::string&>() : nullptr;
  };
  for (const char* field : {"model", "model_name"}) {
    const std::string* model = text_of(field);
    if (model != nullptr && owners_ != nullptr && !IsKnownSeries(*model)) return false;
  }
  const std::string* key = has_labels ? text_of("key") : nullptr;
  return key == nullptr || IsOwnKey(principal_, *key);
}

// Whether there were some, and all are left out.
bool KnownModels::KeepKnown(nlohmann::ordered_json& samples) const {
  const bool had_some = !samples.empty();
  auto kept = nlohmann::ordered_json::array();
  for (auto& one : samples) {
    if (KnowsSample(one)) kept.push_back(std::move(one));
  }
  samples = std::move(kept);
  return had_some && samples.empty();
}

std::string KnownModels::FilterJson(const std::string& text) const {
  if (knows_all_ || (Hidden().empty() && !TellsOfKeys(text))) return text;
  auto all = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object()) return text;
  for (auto& [name, list] : all.items()) {
    if (!list.is_array()) continue;
    KeepKnown(list);
    for (auto family = list.begin(); family != list.end();) {
      const bool has_samples = family->is_object() && family->contains("samples");
      family = has_samples && KeepKnown((*family)["samples"]) ? list.erase(family) : family + 1;
    }
  }
  const size_t line_end = text.find('\n');
  const bool has_lines = line_end != std::string::npos && line_end + 1 < text.size();
  return all.dump(has_lines ? 2 : -1, ' ', false,
                  nlohmann::ordered_json::error_handler_t::replace) +
         (absl::EndsWith(text, "\n") ? "\n" : "");
}

}  // namespace macrame::agentd
