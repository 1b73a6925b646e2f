#include "cli/format/model_view.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/format/cluster_view.h"
#include "cli/format/reason_text.h"
#include "cli/format/table.h"
#include "proto/model_fingerprint.h"
#include "proto/phase_words.h"
#include "proto/reason_codes.h"
#include "proto/replicas.h"

namespace macrame::cli {
namespace {

Tone ToneOf(v1::DeploymentState state) {
  switch (state) {
    case v1::DEPLOYMENT_STATE_READY:
      return Tone::kGood;
    case v1::DEPLOYMENT_STATE_BACKING_OFF:
      return Tone::kBad;
    default:
      return Tone::kWarn;
  }
}

Tone ToneOf(v1::RankPhase phase) {
  if (phase == v1::RANK_PHASE_READY) return Tone::kGood;
  return phase == v1::RANK_PHASE_FAILED || phase == v1::RANK_PHASE_STOPPED ? Tone::kBad
                                                                           : Tone::kWarn;
}

std::string LayersText(const v1::Assignment& assignment) {
  std::string text = absl::StrCat("[", assignment.layer_begin(), ", ", assignment.layer_end(), ")");
  if (assignment.slice_count() > 0) {
    absl::StrAppend(&text, " ", assignment.slice_end() - assignment.slice_begin(), "/",
                    assignment.slice_count());
  }
  return assignment.whole_experts() ? absl::StrCat(text, ", whole experts") : text;
}

std::string HoldsText(const v1::Assignment& assignment) {
  if (assignment.holds_embedding() && assignment.holds_head()) return "embedding, head";
  if (assignment.holds_embedding()) return "embedding";
  return assignment.holds_head() ? "head" : "";
}

const v1::RankStatus* FindRank(const v1::DeploymentStatus& deployment, uint32_t rank) {
  for (const v1::RankStatus& status : deployment.ranks()) {
    if (status.rank() == rank) return &status;
  }
  return nullptr;
}

int ReadyRanks(const v1::DeploymentStatus& deployment) {
  int ready = 0;
  for (const auto& rank : deployment.ranks()) ready += rank.phase() == v1::RANK_PHASE_READY;
  return ready;
}

// Those of the plan, or as many as were asked for where it has fewer.
uint32_t AskedRanks(const v1::DeploymentStatus& deployment) {
  return std::max(deployment.plan().world_size(), deployment.deployment().placement().world_size());
}

std::string ProgressText(const v1::RankStatus* rank) {
  if (rank == nullptr) return "-";
  if (rank->phase() == v1::RANK_PHASE_LOADING) return Percent(rank->progress());
  return rank->memory_bytes() > 0 ? GiB(rank->memory_bytes()) : "-";
}

std::string ContextCell(const v1::Plan& plan) {
  const std::string bits = plan.kv_bits() > 0 ? absl::StrCat(" (", plan.kv_bits(), " bit)") : "";
  return absl::StrCat(plan.context_length(), bits);
}

// "context 4096", "context 4096 in a KV cache of 8 bits".
std::string ContextText(const v1::Plan& plan) {
  const std::string bits =
      plan.kv_bits() > 0 ? absl::StrCat(" in a KV cache of ", plan.kv_bits(), " bits") : "";
  return absl::StrCat("context ", plan.context_length(), bits);
}

void AppendDeployment(const v1::DeploymentStatus& deployment,
                      std::vector<std::vector<Cell>>* rows) {
  const v1::AggregateLoad none;
  uint32_t running = 0, queued = 0;
  for (const auto& rank : deployment.ranks()) {
    running += rank.requests_running();
    queued += rank.requests_queued();
  }
  const int world = static_cast<int>(deployment.plan().world_size());
  rows->push_back({deployment.deployment().name(),
                   {DeploymentWord(deployment.state()), ToneOf(deployment.state())},
                   absl::StrCat(ReadyRanks(deployment), "/", AskedRanks(deployment)),
                   world == 0 ? "-" : ShapeText(deployment.plan()),
                   world == 0 ? "-" : ContextCell(deployment.plan()),
                   Rate(deployment.tokens_per_second()),
                   absl::StrCat(running, "+", queued)});
}

std::string RankLines(const v1::DeploymentStatus& deployment, int width, const Style& style) {
  std::vector<std::vector<Cell>> rows;
  for (const v1::Assignment& assignment : deployment.plan().assignments()) {
    const v1::RankStatus* rank = FindRank(deployment, assignment.rank());
    rows.push_back({deployment.deployment().name(), absl::StrCat(assignment.rank()),
                    assignment.hostname(), LayersText(assignment),
                    rank == nullptr ? Cell("not started", Tone::kDim)
                                    : Cell(PhaseWord(rank->phase()), ToneOf(rank->phase())),
                    ProgressText(rank), GiB(assignment.need().total_bytes())});
  }
  if (rows.empty()) return "";
  return RenderTable({{"MODEL", false, 8, 10},
                      {"RANK", true},
                      {"NODE", false, 7, 10},
                      {"LAYERS"},
                      {"PHASE"},
                      {"MEMORY", true, 3, 8},
                      {"PLANNED", true, 0}},
                     rows, width, style);
}

std::string FailureLine(const v1::DeploymentStatus& deployment, const Style& style) {
  if (!deployment.has_failure() || deployment.failure().code().empty()) return "";
  const bool over = deployment.state() == v1::DEPLOYMENT_STATE_READY;
  // Launched anew because its options changed: nothing failed.
  if (over && deployment.failure().code() == reasons::kSnapshotStale) return "";
  std::string out = absl::StrCat(over ? style.Dim("last failure of ") : style.Bad("failure of "),
                                 Printable(deployment.deployment().name()), ": ",
                                 ReasonSentence(deployment.failure()));
  if (!over && deployment.retry_in_ms() > 0) {
    absl::StrAppend(&out, " (tried again in ", Milliseconds(deployment.retry_in_ms()), ", attempt ",
                    deployment.attempts() + 1, ")");
  }
  return out + "\n";
}

// Which backends it fell from, the last first.
std::string FallbackLines(const v1::DeploymentStatus& deployment, const Style& style) {
  std::string out;
  for (int i = deployment.fallbacks_size() - 1; i >= 0; --i) {
    absl::StrAppend(&out, style.Warn("transport: "), ReasonSentence(deployment.fallbacks(i)), "\n");
  }
  return out;
}

void AppendRejection(const v1::Rejection& rejection, std::string* out) {
  absl::StrAppend(out, "  ", Printable(rejection.subject()), ": ",
                  ReasonSentence(rejection.reason()), "\n");
}

// Shapes that would work too, the fastest first; then what does not.
void AppendRejections(const google::protobuf::RepeatedPtrField<v1::Rejection>& rejections,
                      std::string* out) {
  std::vector<const v1::Rejection*> runners_up, refused;
  for (const v1::Rejection& rejection : rejections) {
    (rejection.has_prediction() ? runners_up : refused).push_back(&rejection);
  }
  std::stable_sort(
      runners_up.begin(), runners_up.end(), [](const v1::Rejection* a, const v1::Rejection* b) {
        return a->prediction().tokens_per_second() > b->prediction().tokens_per_second();
      });
  if (!runners_up.empty()) absl::StrAppend(out, "\nWould work too:\n");
  for (const v1::Rejection* rejection : runners_up) AppendRejection(*rejection, out);
  if (!refused.empty()) absl::StrAppend(out, "\nNot taken:\n");
  for (const v1::Rejection* rejection : refused) AppendRejection(*rejection, out);
}

// A span of a value, with as many digits as its ends differ in: "26 to 36", "1.3 to 2.5".
std::string SpanText(double low, double high) {
  const auto text = [&](double value) {
    return high >= 10 ? absl::StrFormat("%.0f", value) : absl::StrFormat("%.1f", value);
  };
  return absl::StrCat(text(low), " to ", text(high));
}

// What published speeds of such plans say of it.
std::string EvidenceLines(const v1::Prediction& prediction) {
  constexpr uint32_t kFewFigures = 10;
  if (prediction.published_figures() == 0) {
    return "          an estimate alone: no speeds of such plans on such machines were published\n";
  }
  const uint32_t figures = prediction.published_figures();
  const std::string spread =
      SpanText(prediction.tokens_per_second_low(), prediction.tokens_per_second_high());
  if (figures < kFewFigures) {
    return absl::StrCat("          little evidence: ", Plural(figures, "speed"), " of such plans ",
                        figures == 1 ? "was" : "were", " published, ", spread,
                        " tokens/s by their errors\n");
  }
  return absl::StrCat("          ", spread, " by the errors of nine of ten of ", figures,
                      " published speeds of such plans\n");
}

// Two digits: it is no better known.
std::string FirstTokenText(const v1::Prediction& prediction) {
  const auto seconds = [](double ms) {
    const double s = ms / 1000;
    if (s >= 10) return absl::StrFormat("%.0f", s);
    return s >= 1 ? absl::StrFormat("%.1f", s) : absl::StrFormat("%.2f", s);
  };
  std::string text = absl::StrCat("about ", seconds(prediction.first_token_ms()), " s");
  if (prediction.first_token_ms_high() > 0) {
    absl::StrAppend(&text, " (", seconds(prediction.first_token_ms_low()), " to ",
                    seconds(prediction.first_token_ms_high()), ")");
  }
  return text;
}

// "Predicted: 31.1 tokens/s for one user (…)".
std::string PredictionLines(const v1::Prediction& prediction) {
  if (prediction.tokens_per_second() <= 0) return "";
  std::string out = absl::StrCat(
      "\nPredicted: ", EstimatedRate(prediction.tokens_per_second()), " tokens/s for one user, ",
      prediction.prompt_tokens(), " tokens into the context\n", EvidenceLines(prediction),
      absl::StrFormat("          %.1f ms a token: weights %.1f, context %.1f, starting "
                      "layers %.1f, links %.1f\n",
                      1000 / prediction.tokens_per_second(), prediction.weights_ms(),
                      prediction.kv_ms(), prediction.overhead_ms(), prediction.communication_ms()));
  if (prediction.users() > 1) {
    absl::StrAppend(&out, "          ", EstimatedRate(prediction.users_tokens_per_second()),
                    " tokens/s for ", prediction.users(), " users together\n");
  }
  absl::StrAppend(&out, "          first token after a prompt of ", prediction.prompt_tokens(),
                  ": ", FirstTokenText(prediction), "\n");
  if (prediction.power_watts() > 0) {
    absl::StrAppend(&out,
                    absl::StrFormat("          %.0f W while generating for one, %.1f J a token\n",
                                    prediction.power_watts(), prediction.joules_per_token()));
  }
  if (prediction.correction() > 0 && prediction.correction() != 1) {
    absl::StrAppend(&out, absl::StrFormat("          times %.2f: steps measured on this cluster "
                                          "against the estimate\n",
                                          prediction.correction()));
  }
  return out;
}

std::string AssignmentsTable(const v1::Plan& plan, int width, const Style& style) {
  std::vector<std::vector<Cell>> rows;
  for (const v1::Assignment& assignment : plan.assignments()) {
    const v1::MemoryNeed& need = assignment.need();
    const double share = assignment.budget_bytes() == 0
                             ? -1
                             : static_cast<double>(need.total_bytes()) /
                                   static_cast<double>(assignment.budget_bytes());
    rows.push_back({absl::StrCat(assignment.rank()), assignment.hostname(), LayersText(assignment),
                    HoldsText(assignment),
                    GiB(need.weights_bytes() + need.embedding_bytes() + need.head_bytes()),
                    GiB(need.kv_cache_bytes()), GiB(need.total_bytes()),
                    GiB(assignment.budget_bytes()), Percent(share)});
  }
  return RenderTable({{"RANK", true},
                      {"NODE", false, 7, 10},
                      {"LAYERS"},
                      {"HOLDS", false, 0},
                      {"WEIGHTS", true, 3, 8},
                      {"KV CACHE", true, 2, 8},
                      {"NEEDS", true},
                      {"BUDGET", true},
                      {"USE", true}},
                     rows, width, style);
}

}  // namespace

std::string DeploymentWord(v1::DeploymentState state) {
  switch (state) {
    case v1::DEPLOYMENT_STATE_PENDING:
      return "pending";
    case v1::DEPLOYMENT_STATE_LAUNCHING:
      return "loading";
    case v1::DEPLOYMENT_STATE_READY:
      return "ready";
    case v1::DEPLOYMENT_STATE_BACKING_OFF:
      return "recovering";
    case v1::DEPLOYMENT_STATE_REMOVING:
      return "removing";
    default:
      return "unknown";
  }
}

std::string ShapeText(const v1::Plan& plan) {
  const std::string drafts =
      plan.has_draft_model() ? absl::StrCat(", drafts by ", Printable(plan.draft_model().name()))
                             : "";
  if (plan.world_size() <= 1) return absl::StrCat("one node", drafts);
  const std::string via =
      plan.backend().empty() ? "" : absl::StrCat(" via ", Printable(plan.backend()));
  if (plan.tp() > 1 && plan.pp() > 1) {
    return absl::StrCat("tensor ", plan.tp(), " x pipeline ", plan.pp(), via, drafts);
  }
  return absl::StrCat(plan.tp() > 1 ? "tensor over " : "pipeline over ",
                      plan.tp() > 1 ? plan.tp() : plan.pp(), via, drafts);
}

namespace {

// runtime/serving/rank_service.h
constexpr std::string_view kNoChatTemplate = "no_chat_template";

bool LacksChatTemplate(const v1::DeploymentStatus& status) {
  return std::any_of(status.ranks().begin(), status.ranks().end(), [](const v1::RankStatus& rank) {
    return rank.phase() == v1::RANK_PHASE_READY && rank.phase_detail() == kNoChatTemplate;
  });
}

std::string TemplateLine(const v1::DeploymentStatus& status, const Style& style) {
  if (!LacksChatTemplate(status)) return "";
  return absl::StrCat(style.Warn("no chat template: "), Printable(status.deployment().name()),
                      " takes plain prompts only ('model infer --raw', /v1/completions)\n");
}

std::string DegradedLine(const v1::DeploymentStatus& status) {
  if (status.degraded().code().empty()) return "";
  return absl::StrCat("Less than asked for: ", ReasonSentence(status.degraded()), "\n");
}

}  // namespace

std::string DeploymentsView(const v1::ClusterStatus& status, int width, const Style& style) {
  std::vector<std::vector<Cell>> rows;
  std::string ranks, failures;
  for (const v1::DeploymentStatus& deployment : status.deployments()) {
    AppendDeployment(deployment, &rows);
    ranks += RankLines(deployment, width, style);
    failures += TemplateLine(deployment, style) + FailureLine(deployment, style) +
                FallbackLines(deployment, style);
  }
  std::string out = RenderTable({{"MODEL", false, 8, 10},
                                 {"STATE"},
                                 {"RANKS", true},
                                 {"SHAPE", false, 4, 8},
                                 {"CONTEXT", true, 0},
                                 {"TOK/S", true},
                                 {"REQUESTS", true, 0}},
                                rows, width, style);
  if (!ranks.empty()) absl::StrAppend(&out, "\n", ranks);
  if (!failures.empty()) absl::StrAppend(&out, "\n", failures);
  return out;
}

std::string BalanceView(const v1::DeploymentStatus& deployment, int width, const Style& style) {
  const auto weights = [](const v1::Assignment& part) {
    const v1::MemoryNeed& need = part.need();
    return need.weights_bytes() + need.embedding_bytes() + need.head_bytes();
  };
  uint64_t all = 0;
  for (const v1::Assignment& part : deployment.plan().assignments()) all += weights(part);
  std::vector<std::vector<Cell>> rows;
  for (const v1::Assignment& part : deployment.plan().assignments()) {
    const v1::RankStatus* rank = FindRank(deployment, part.rank());
    const uint64_t measured = rank == nullptr ? 0 : rank->memory_bytes();
    const double share =
        all == 0 ? -1 : static_cast<double>(weights(part)) / static_cast<double>(all);
    rows.push_back({absl::StrCat(part.rank()), part.hostname(), LayersText(part),
                    HoldsText(part).empty() ? "-" : HoldsText(part), Percent(share),
                    GiB(weights(part)),
                    GiB(part.need().kv_cache_bytes() + part.need().state_bytes()),
                    GiB(part.need().total_bytes()), measured == 0 ? "-" : GiB(measured),
                    GiB(part.budget_bytes())});
  }
  if (rows.empty()) return "";
  return RenderTable({{"RANK", true},
                      {"NODE", false, 8, 10},
                      {"LAYERS"},
                      {"HOLDS", false, 0},
                      {"SHARE", true, 6},
                      {"WEIGHTS", true, 5},
                      {"CACHE", true, 4},
                      {"PLANNED", true},
                      {"MEASURED", true},
                      {"LIMIT", true, 0}},
                     rows, width, style);
}

std::string LoadedView(const v1::ClusterStatus& status, int width, const Style& style) {
  if (status.deployments().empty()) {
    return "No model is loaded; 'clusterctl run NAME' loads one and talks to it.\n";
  }
  std::vector<std::vector<Cell>> rows;
  for (const v1::DeploymentStatus& deployment : status.deployments()) {
    uint64_t memory = 0;
    uint32_t running = 0, queued = 0;
    for (const v1::RankStatus& rank : deployment.ranks()) {
      memory += rank.memory_bytes();
      running += rank.requests_running();
      queued += rank.requests_queued();
    }
    std::vector<std::string> nodes;
    for (const v1::Assignment& part : deployment.plan().assignments()) {
      const bool is_new = std::find(nodes.begin(), nodes.end(), part.hostname()) == nodes.end();
      if (is_new) nodes.push_back(part.hostname());
    }
    const v1::Plan& plan = deployment.plan();
    rows.push_back({deployment.deployment().name(),
                    {DeploymentWord(deployment.state()), ToneOf(deployment.state())},
                    nodes.empty() ? "-" : absl::StrJoin(nodes, ", "),
                    memory == 0 ? "-" : GiB(memory),
                    nodes.empty() ? "-" : ContextCell(plan),
                    Rate(deployment.tokens_per_second()),
                    absl::StrCat(running),
                    absl::StrCat(queued)});
  }
  return RenderTable({{"MODEL", false, 8, 10},
                      {"STATE"},
                      {"NODES", false, 5, 8},
                      {"MEMORY", true, 4},
                      {"CONTEXT", true, 0},
                      {"TOK/S", true},
                      {"RUNNING", true},
                      {"QUEUED", true, 0}},
                     rows, width, style);
}

// The beginnings of both digests.
std::string ShortFingerprint(const std::string& fingerprint) {
  const std::string weights(WeightsPartOf(fingerprint).substr(0, 8));
  const std::string text(TextPartOf(fingerprint).substr(0, 4));
  return text.empty() ? fingerprint.substr(0, 12) : absl::StrCat(weights, ".", text);
}

// Models of one name whose weights are the same and whose text files are not: what they answer
// depends on the node.
std::string DifferentTexts(const v1::ListModelsResponse& models) {
  std::string out;
  std::set<std::string> told;
  for (const v1::ModelEntry& model : models.models()) {
    int alike = 0;
    for (const v1::ModelEntry& other : models.models()) {
      if (other.name() != model.name()) continue;
      if (DifferInTextAlone(model.fingerprint(), other.fingerprint())) ++alike;
    }
    if (alike == 0 || !told.insert(model.name()).second) continue;
    absl::StrAppend(&out, "\n", Printable(model.name()), " has the same weights and ", alike + 1,
                    " different sets of text files (tokenizer, chat template, "
                    "generation_config.json) on different nodes. A load takes one of them, and "
                    "nodes that have it. Copy the right files to all.\n");
  }
  return out;
}

std::string ModelsView(const v1::ListModelsResponse& models, int width, const Style& style) {
  if (models.models().empty()) {
    return "No node has a model. Put a model's folder into one of the model folders.\n";
  }
  std::vector<std::vector<Cell>> rows;
  for (const v1::ModelEntry& model : models.models()) {
    const bool loaded = model.has_deployment();
    rows.push_back({model.name(),
                    loaded ? Cell(DeploymentWord(model.deployment().state()),
                                  ToneOf(model.deployment().state()))
                           : Cell("not loaded", Tone::kDim),
                    GiB(model.size_bytes()), Plural(model.node_ids_size(), "node"),
                    loaded ? ShapeText(model.deployment().plan()) : "-",
                    ShortFingerprint(model.fingerprint())});
  }
  return RenderTable({{"MODEL", false, 8, 16},
                      {"STATE"},
                      {"SIZE", true},
                      {"FILES ON"},
                      {"SHAPE", false, 3, 8},
                      {"FINGERPRINT", false, 0}},
                     rows, width, style) +
         DifferentTexts(models);
}

std::string PlanView(const v1::PlanResult& result, int width, const Style& style) {
  std::string out;
  if (result.has_not_served()) {
    absl::StrAppend(&out, style.Bad("Predicted only: "), ReasonSentence(result.not_served()),
                    "\n\n");
  }
  if (!result.has_plan()) {
    const bool misfit = result.failure().code() == reasons::kMemoryShort;
    absl::StrAppend(&out, style.Bad(misfit ? "Does not fit: " : "No plan: "),
                    ReasonSentence(result.failure()), "\n");
    AppendRejections(result.rejections(), &out);
    return out;
  }
  const v1::Plan& plan = result.plan();
  absl::StrAppend(&out, style.Bold(Printable(plan.model_name())), ": ", ShapeText(plan), " (",
                  Plural(plan.world_size(), "rank"), "), ", ContextText(plan), ", ",
                  Plural(plan.concurrent_sequences(), "sequence"), " at once\n\n",
                  AssignmentsTable(plan, width, style), PredictionLines(plan.prediction()));
  if (!plan.reasons().empty()) {
    absl::StrAppend(&out, "\nWhy:\n");
    for (const v1::Reason& reason : plan.reasons()) {
      absl::StrAppend(&out, "  ", ReasonSentence(reason), "\n");
    }
  }
  AppendRejections(plan.rejections().empty() ? result.rejections() : plan.rejections(), &out);
  return out;
}

std::string SpeedsView(const v1::SpeedCorrections& speeds, int width, const Style& style) {
  if (speeds.corrections().empty()) {
    return "No answers of at least 8 tokens were timed yet: speeds are predicted without "
           "corrections.\n";
  }
  std::vector<std::vector<Cell>> rows;
  for (const v1::SpeedCorrection& correction : speeds.corrections()) {
    rows.push_back({correction.backend(), absl::StrCat(correction.samples()),
                    absl::StrFormat("%.2f", correction.measured_to_predicted())});
  }
  return absl::StrCat(RenderTable({{"RANKS OVER"}, {"ANSWERS", true}, {"STEP / PREDICTED", true}},
                                  rows, width, style),
                      "\nPlans multiply a step's time by this from 3 answers on (20 are "
                      "remembered).\n'clusterctl speeds reset' forgets it.\n");
}

std::string LoadedSummary(const v1::DeploymentStatus& status, double seconds) {
  const v1::Plan& plan = status.plan();
  uint64_t bytes = 0;
  std::string nodes;
  for (const v1::Assignment& assignment : plan.assignments()) {
    bytes += assignment.need().total_bytes();
    absl::StrAppend(&nodes, nodes.empty() ? "" : ", ", Printable(assignment.hostname()));
  }
  // The last replica's status, when there are several; it is asked for by the name of all.
  const std::string name = Printable(DeploymentOfReplica(status.deployment().name()));
  const uint32_t replicas = status.deployment().replicas();
  const std::string of_several =
      replicas > 1 ? absl::StrCat(replicas, " replicas, the last one ") : "";
  return absl::StrCat(name, " is ready: ", of_several, ShapeText(plan), " (", nodes, "), ",
                      ContextText(plan), ", ", GiB(bytes), " planned, ",
                      absl::StrFormat("%.1f s", seconds), "\n", DegradedLine(status),
                      TemplateLine(status, Style()), "Ask it:  clusterctl model infer ", name,
                      LacksChatTemplate(status) ? " --raw" : "", " --prompt \"...\"\n");
}

}  // namespace macrame::cli
