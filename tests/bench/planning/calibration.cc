#include "tests/bench/planning/calibration.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "planner/chip_table.h"
#include "planner/gang.h"
#include "planner/offline/catalogue_entry.h"
#include "planner/prediction.h"

namespace macrame::planner {
namespace {

struct Figure {
  std::string id, model, transport, sharding;
  std::vector<std::string> machines;  // one for all nodes, or each node's
  uint32_t bits = 0, nodes = 0;
  double speed = 0, context = 0;        // speed: of all streams together; 0: not published
  double prefill = 0, first_token = 0;  // tokens a second; seconds; 0: not published
  uint32_t prompt = 0, streams = 1;
  std::vector<uint32_t> widths;  // of a tensor split; none: equal ones
  bool fit = true;
  bool counted = true;
};

// One figure with all that predicting it takes.
struct Case {
  Figure figure;
  v1::PlanRequest request;
  double context = 0;
};

// A step's time is a sum of these, each times how often it comes: 1 / efficiency and seven times.
constexpr size_t kTerms = 8;
using Terms = std::array<double, kTerms>;
constexpr double kNothing = 1e-12;  // 1 / efficiency can't be 0

Terms TermsOf(const CostParameters& p) {
  return {1 / p.bandwidth_efficiency, p.layer_overhead_us,
          p.expert_overhead_us,       p.latent_attention_overhead_us,
          p.collective_wait_us,       p.tcp_hop_us,
          p.step_overhead_us,         p.small_message_us};
}

CostParameters ParametersOf(const Terms& terms) {
  CostParameters p;
  p.bandwidth_efficiency = 1 / terms[0];
  p.layer_overhead_us = terms[1];
  p.expert_overhead_us = terms[2];
  p.latent_attention_overhead_us = terms[3];
  p.collective_wait_us = terms[4];
  p.tcp_hop_us = terms[5];
  p.step_overhead_us = terms[6];
  p.small_message_us = terms[7];
  // One token is never arithmetic.
  p.dense_efficiency = p.expert_efficiency = p.attention_efficiency = 1e9;
  return p;
}

// Tables are written by hand: "Pipeline", "pp", "by layers", "RDMA over Thunderbolt 5", "jaccl".
bool HasAny(const std::string& text, std::initializer_list<std::string_view> words) {
  const std::string lower = absl::AsciiStrToLower(text);
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return lower.find(word) != std::string::npos; });
}

bool IsRdma(const Figure& figure) {
  return HasAny(figure.transport, {"rdma", "jaccl", "verbs"}) &&
         !HasAny(figure.transport, {"without rdma", "no rdma", "rdma off", "rdma disabled"});
}

bool IsTensor(const Figure& figure) { return HasAny(figure.sharding, {"tensor", "tp"}); }

// Without a word about it: by layers, as engines without RDMA do.
bool IsPipeline(const Figure& figure) {
  if (figure.nodes < 2 || IsTensor(figure)) return false;
  return HasAny(figure.sharding, {"pipe", "layer", "pp"}) || !IsRdma(figure);
}

std::string MachinesText(const Figure& figure) {
  std::vector<std::string> distinct = figure.machines;
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  return absl::StrJoin(distinct, " + ");
}

Gang GangOf(const Case& c) {
  const uint32_t nodes = c.figure.nodes;
  const uint32_t layers = c.request.model().layer_count();
  Gang gang;
  if (IsRdma(c.figure)) gang.fabric.backend = Backend::kJaccl;
  if (IsPipeline(c.figure)) {
    uint32_t begin = 0;
    for (uint32_t i = 0; i < nodes; ++i) {
      const uint32_t end = begin + layers / nodes + (i < layers % nodes ? 1 : 0);
      gang.stages.push_back({{i}, {1}, 1, begin, end});
      begin = end;
    }
    return gang;
  }
  GangStage stage{{}, std::vector<uint32_t>(nodes, 1), nodes, 0, layers};
  if (c.figure.widths.size() == nodes) {
    stage.widths = c.figure.widths;
    stage.slice_count = std::accumulate(stage.widths.begin(), stage.widths.end(), 0U);
  }
  for (uint32_t i = 0; i < nodes; ++i) stage.nodes.push_back(i);
  gang.stages.push_back(stage);
  return gang;
}

ServingLoad LoadOf(const Case& c) {
  ServingLoad load;
  load.context_tokens = load.predicted_positions = static_cast<uint32_t>(c.context);
  return load;
}

// `of` a judge of the case's gang.
template <typename Of>
auto Judged(const Case& c, const CostParameters& parameters, const Of& of) {
  std::vector<Candidate> candidates;
  for (const v1::PlannerNode& node : c.request.nodes()) candidates.push_back(CandidateOf(node));
  const LinkCosts links(c.request, candidates);
  GangJudge judge(c.request.model(), candidates, links, LoadOf(c), parameters);
  return of(judge, GangOf(c));
}

double StepUs(const Case& c, const CostParameters& parameters) {
  return Judged(c, parameters, [](GangJudge& judge, const Gang& gang) {
    return judge.Step(gang, judge.DecodeOf(1)).total_us();
  });
}

double SpeedOf(const Case& c, const CostParameters& parameters) {
  return Judged(c, parameters, [&](GangJudge& judge, const Gang& gang) {
    return judge.TokensPerSecond(gang, c.figure.streams);
  });
}

// Seconds to the first token, and what was published of it: itself, or the prompt by its rate.
double FirstTokenOf(const Case& c, const CostParameters& parameters) {
  return Judged(c, parameters, [&](GangJudge& judge, const Gang& gang) {
    return judge.FirstTokenUs(gang, c.figure.prompt) / 1e6;
  });
}

double PublishedFirstToken(const Figure& figure) {
  if (figure.prompt == 0) return 0;
  if (figure.first_token > 0) return figure.first_token;
  return figure.prefill > 0 ? figure.prompt / figure.prefill : 0;
}

std::optional<PlanKind> KindOfCase(const Case& c) {
  return Judged(c, CostParameters(),
                [](GangJudge& judge, const Gang& gang) { return KindOf(judge, gang); });
}

// What each term is multiplied by in this case; the last entry: what none of them explains (links).
std::array<double, kTerms + 1> Coefficients(const Case& c) {
  std::array<double, kTerms + 1> row;
  const Terms none{kNothing};
  row[kTerms] = StepUs(c, ParametersOf(none));
  for (size_t i = 0; i < kTerms; ++i) {
    Terms one = none;
    one[i] = 1;
    row[i] = StepUs(c, ParametersOf(one)) - row[kTerms];
  }
  return row;
}

// Least squares of relative errors, one term after the other until none moves; a term that would
// come out negative is held at zero.
Terms Fit(const std::vector<Case>& cases, const Terms& start) {
  std::vector<std::array<double, kTerms + 1>> rows;
  for (const Case& c : cases) rows.push_back(Coefficients(c));
  Terms terms = start;
  for (int round = 0; round < 20000; ++round) {
    for (size_t k = 0; k < kTerms; ++k) {
      double top = 0, bottom = 0;
      for (size_t i = 0; i < cases.size(); ++i) {
        const double wanted = 1e6 / cases[i].figure.speed;
        double others = rows[i][kTerms];
        for (size_t j = 0; j < kTerms; ++j) others += j == k ? 0 : rows[i][j] * terms[j];
        top += rows[i][k] * (wanted - others) / (wanted * wanted);
        bottom += rows[i][k] * rows[i][k] / (wanted * wanted);
      }
      if (bottom > 0) terms[k] = std::max(k == 0 ? 1.0 : 0.0, top / bottom);
    }
  }
  return terms;
}

// "4", "4.5", "4bit", "Q4_K_M", "mxfp4", "bf16"; 0: no number in it.
uint32_t NumberIn(const std::string& text) {
  static const std::regex number(R"((\d+)(\.\d+)?)");
  std::smatch found;
  return std::regex_search(text, found, number) ? std::stoul(found[1]) : 0;
}

// "4x M3 Ultra" is four of them, "M3 Max + M4 Max" one of each, "3x M3 Ultra + M4 Max" four.
std::vector<std::string> MachinesIn(const YAML::Node& node, uint32_t* nodes) {
  std::vector<std::string> entries, machines;
  if (node.IsSequence()) {
    for (const YAML::Node& one : node) entries.push_back(one.as<std::string>());
  } else {
    entries = absl::StrSplit(node.as<std::string>(), '+');
  }
  static const std::regex times(R"(^\s*(\d+)\s*(x|×))");
  for (const std::string& entry : entries) {
    std::smatch found;
    const size_t count =
        std::regex_search(entry, found, times) ? std::min(64UL, std::stoul(found[1])) : 1;
    machines.insert(machines.end(), count, entry);
  }
  if (*nodes == 0) *nodes = static_cast<uint32_t>(machines.size());
  return machines;
}

void ReadSpeeds(const YAML::Node& node, Figure* figure) {
  const auto number = [&](const char* key) { return node[key] ? node[key].as<double>() : 0; };
  figure->speed = number("tokens_per_second");
  figure->prefill = number("prefill_tokens_per_second");
  figure->first_token = number("first_token_s");
  figure->prompt = static_cast<uint32_t>(number("prompt_tokens"));
  figure->streams = std::max(1U, static_cast<uint32_t>(number("streams")));
  figure->context = number("context");
  if (figure->context == 0) figure->context = figure->prompt;
  if (node["widths"]) figure->widths = node["widths"].as<std::vector<uint32_t>>();
  if (figure->speed > 0 || PublishedFirstToken(*figure) > 0) return;
  throw std::runtime_error(absl::StrCat(figure->model,
                                        " has no 'tokens_per_second', nor 'prompt_tokens' with ",
                                        "'prefill_tokens_per_second' or 'first_token_s'"));
}

Figure ReadFigure(const YAML::Node& node) {
  const auto text = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      if (node[key] && node[key].IsScalar()) return node[key].as<std::string>();
    }
    return std::string();
  };
  Figure figure;
  figure.id = text({"id"});
  figure.model = text({"model"});
  figure.transport = text({"transport"});
  figure.sharding = text({"sharding", "parallelism"});
  figure.bits = NumberIn(text({"bits", "quantization"}));
  figure.nodes = node["nodes"] ? node["nodes"].as<uint32_t>() : 0;
  const YAML::Node machines = node["machines"] ? node["machines"] : node["machine"];
  if (!machines) throw std::runtime_error(absl::StrCat(figure.model, " has no 'machines'"));
  figure.machines = MachinesIn(machines, &figure.nodes);
  ReadSpeeds(node, &figure);
  figure.fit = !node["fit"] || node["fit"].as<bool>();
  figure.counted = !node["counted"] || node["counted"].as<bool>();
  return figure;
}

std::vector<Figure> ReadFigures(const std::string& path) {
  std::vector<Figure> figures;
  try {
    const YAML::Node root = YAML::LoadFile(path);
    for (const YAML::Node& node : root.IsSequence() ? root : root["figures"]) {
      figures.push_back(ReadFigure(node));
      if (figures.back().id.empty()) figures.back().id = absl::StrCat("row ", figures.size());
    }
  } catch (const std::exception& error) {
    throw std::runtime_error(
        absl::StrCat(path, ", figure ", figures.size() + 1, ": ", error.what()));
  }
  return figures;
}

// A model that no entry tells of: the parameters that its name states ("34B", "30B-A3B") in as many
// layers as models of that size have. Its bytes decide nearly alone.
std::optional<CatalogueEntry> GuessedEntry(const std::string& name) {
  static const std::regex all(R"((^|[-_ ])(\d+(\.\d+)?)[bB]($|[-_ ]))");
  static const std::regex active(R"([-_ ][aA](\d+(\.\d+)?)[bB])");
  std::smatch found;
  if (!std::regex_search(name, found, all)) return std::nullopt;
  CatalogueEntry entry;
  entry.name = name;
  entry.parameters = entry.active_parameters = std::stod(found[2]);
  if (std::regex_search(name, found, active)) entry.active_parameters = std::stod(found[1]);
  constexpr std::array<std::pair<double, uint32_t>, 6> kTypicalLayers = {
      {{2, 24}, {10, 32}, {20, 40}, {40, 60}, {100, 80}, {1e9, 100}}};
  const auto typical =
      std::find_if(kTypicalLayers.begin(), kTypicalLayers.end(),
                   [&](const auto& size) { return entry.parameters < size.first; });
  const bool mixture = entry.active_parameters < entry.parameters;
  entry.layers = mixture ? 48 : typical->second;
  entry.hidden =
      static_cast<uint32_t>(std::sqrt(entry.active_parameters * 1e9 / 12 / entry.layers));
  entry.kv_heads = 8;
  entry.head_dim = 128;
  entry.vocab = 128 * 1024;
  entry.context = 32768;
  return entry;
}

// "M4 Max 32-core GPU", "M4 Max 36GB": the smaller GPU. Of several numbers of cores the one that
// the chip's GPU comes with, which its CPU's may be too: "GPU" decides.
uint32_t GpuCoresOf(const Chip& chip, const std::string& machine) {
  static const std::regex cores(R"((\d+)[- ]?(cores?|c)\b(\s*gpu)?)", std::regex::icase);
  static const std::regex memory(R"((\d+) ?(gb|gib|g)\b)", std::regex::icase);
  uint32_t told = 0;
  for (std::sregex_iterator it(machine.begin(), machine.end(), cores), end; it != end; ++it) {
    const uint32_t count = std::stoul((*it)[1]);
    const bool known = count == chip.gpu_cores[0] || count == chip.gpu_cores[1];
    if (known && (told == 0 || (*it)[3].matched)) told = count;
  }
  if (told > 0) return told;
  std::smatch found;
  return GpuCoresWith(chip, std::regex_search(machine, found, memory) ? std::stoul(found[1]) : 0);
}

absl::StatusOr<Case> CaseOf(const Figure& figure, const std::vector<CatalogueEntry>& entries) {
  const auto known = FindEntry(entries, figure.model);
  const std::optional<CatalogueEntry> guessed =
      known.ok() ? std::nullopt : GuessedEntry(figure.model);
  if (!known.ok() && !guessed.has_value()) return known.status();
  if (figure.nodes == 0) return absl::InvalidArgumentError("no nodes");
  if (guessed.has_value()) {
    std::printf(
        "%s: %s is not in the catalogue; taken by its name: %g billion parameters, %g of "
        "them active\n",
        figure.id.c_str(), figure.model.c_str(), guessed->parameters, guessed->active_parameters);
  }
  Case c;
  c.figure = figure;
  c.context = figure.context > 0 ? figure.context : kPredictedPositions;
  const CatalogueEntry& entry = guessed.has_value() ? *guessed : **known;
  c.figure.bits = BitsOf(entry, figure.model, figure.bits);
  *c.request.mutable_model() = DescribeEntry(entry, c.figure.bits);
  for (uint32_t i = 0; i < figure.nodes; ++i) {
    const std::string& machine = figure.machines[i % figure.machines.size()];
    const Chip* chip = FindChip(machine);
    if (chip == nullptr) {
      return absl::NotFoundError(absl::StrCat("no chip is known in '", machine, "'"));
    }
    v1::PlannerNode& node = *c.request.add_nodes();
    node.set_node_id("node-" + std::to_string(i));
    node.set_chip(std::string(chip->name));
    node.set_gpu_cores(GpuCoresOf(*chip, machine));
  }
  for (uint32_t i = 0; i < figure.nodes; ++i) {
    for (uint32_t j = 0; j < figure.nodes; ++j) {
      v1::PlannerLink& link = *c.request.add_links();
      link.set_from_node_id("node-" + std::to_string(i));
      link.set_to_node_id("node-" + std::to_string(j));
      link.set_medium(HasAny(figure.transport, {"ethernet", "gbe", "lan"})
                          ? v1::LINK_MEDIUM_ETHERNET
                          : v1::LINK_MEDIUM_THUNDERBOLT);
      link.add_backends("ring");
      if (IsRdma(figure)) link.add_backends("jaccl");
    }
  }
  return c;
}

double ErrorOf(const Case& c, const CostParameters& parameters) {
  return SpeedOf(c, parameters) / c.figure.speed - 1;
}

void PrintTerms(const char* what, const Terms& terms) {
  std::printf(
      "%s: bandwidth efficiency %.3f, layer %.1f us, experts %.1f us more, latent "
      "attention %.1f us more, collective wait %.1f us, TCP hop %.0f us, step %.0f us, small "
      "message %.2f us\n",
      what, 1 / terms[0], terms[1], terms[2], terms[3], terms[4], terms[5], terms[6], terms[7]);
}

// Does another node help? The sign of each published step from fewer nodes to more, with the same
// model, bits and machines.
bool PrintSigns(const std::vector<Case>& cases, const CostParameters& parameters) {
  bool all = true;
  for (const Case& few : cases) {
    for (const Case& more : cases) {
      const bool same = few.figure.model == more.figure.model &&
                        few.figure.bits == more.figure.bits &&
                        few.figure.machines == more.figure.machines;
      const bool alone = few.figure.nodes == 1 || (few.figure.sharding == more.figure.sharding &&
                                                   few.figure.transport == more.figure.transport);
      if (!few.figure.counted || !more.figure.counted) continue;
      const bool alone_both = few.figure.streams == 1 && more.figure.streams == 1;
      if (few.figure.speed <= 0 || more.figure.speed <= 0 || !alone_both) continue;
      if (!same || !alone || few.figure.nodes >= more.figure.nodes) continue;
      const bool published = more.figure.speed > few.figure.speed;
      const bool predicted = StepUs(more, parameters) < StepUs(few, parameters);
      all = all && published == predicted;
      std::printf("%s from %u to %u nodes (%s, %s): published %s, predicted %s%s\n",
                  few.figure.model.c_str(), few.figure.nodes, more.figure.nodes,
                  more.figure.sharding.c_str(), more.figure.transport.c_str(),
                  published ? "faster" : "slower", predicted ? "faster" : "slower",
                  published == predicted ? "" : "  WRONG");
    }
  }
  return all;
}

// How far predictions of one kind are from what was published of it.
struct Errors {
  std::vector<double> errors;  // predicted / published - 1
  void Add(double error) { errors.push_back(error); }
  std::vector<double> Sizes() const {
    std::vector<double> sizes;
    for (const double error : errors) sizes.push_back(std::abs(error));
    std::sort(sizes.begin(), sizes.end());
    return sizes;
  }
  double Median() const { return Sizes()[errors.size() / 2]; }
  double Largest() const { return Sizes().back(); }
  // Published / predicted, without one in twenty on either side.
  PublishedSpread Spread() const {
    constexpr size_t kFew = 10;
    std::vector<double> shares;
    for (const double error : errors) shares.push_back(1 / (1 + error));
    std::sort(shares.begin(), shares.end());
    const size_t out = shares.size() < kFew ? 0 : shares.size() / 20;
    return {static_cast<uint32_t>(shares.size()), shares[out], shares[shares.size() - 1 - out]};
  }
};

// "| one Mac | 96 | 5.6 % | 9.4 % | +132 % | 50 of 96 |", and whether the planner's table says so.
bool PrintErrors(std::string_view name, const Errors& kind, const PublishedSpread* used) {
  if (kind.errors.empty()) return used == nullptr || used->figures == 0;
  const auto larger = [](double a, double b) { return std::abs(a) < std::abs(b); };
  const double largest = *std::max_element(kind.errors.begin(), kind.errors.end(), larger);
  const std::vector<double> sizes = kind.Sizes();
  const double mean = std::accumulate(sizes.begin(), sizes.end(), 0.0) / sizes.size();
  const auto over =
      std::count_if(kind.errors.begin(), kind.errors.end(), [](double error) { return error > 0; });
  const PublishedSpread found = kind.Spread();
  std::printf("| %s | %u | %.1f %% | %.1f %% | %+.1f %% | %zu | %.2f to %.2f |\n",
              std::string(name).c_str(), found.figures, kind.Median() * 100, mean * 100,
              largest * 100, static_cast<size_t>(over), found.low, found.high);
  if (used == nullptr) return true;
  constexpr double kRounding = 0.0051;
  const bool same = used->figures == found.figures && std::abs(used->low - found.low) < kRounding &&
                    std::abs(used->high - found.high) < kRounding;
  if (!same) {
    std::printf("planner/prediction.cc has {%u, %.2f, %.2f} of these  WRONG\n", used->figures,
                used->low, used->high);
  }
  return same;
}

// Nothing left out, and the tables in prediction.cc held to it.
bool PrintKinds(const std::vector<Case>& cases) {
  std::printf(
      "\n| all figures | count | median error | mean | largest | predicted above | published / "
      "predicted, nine of ten |\n| --- | --- | --- | --- | --- | --- | --- |\n");
  bool same = true;
  Errors all, first, uncounted;
  for (const PlanKind kind : {PlanKind::kOneNode, PlanKind::kTensorOfTwo, PlanKind::kTensorOfMore,
                              PlanKind::kTensorOverTcp, PlanKind::kPipeline}) {
    Errors errors;
    for (const Case& c : cases) {
      if (c.figure.speed > 0 && KindOfCase(c) == kind) errors.Add(ErrorOf(c, CostParameters()));
    }
    const PublishedSpread used = SpeedSpread(kind);
    same = PrintErrors(NameOf(kind), errors, &used) && same;
    for (const double error : errors.errors) all.Add(error);
  }
  for (const Case& c : cases) {
    if (c.figure.speed > 0 && !c.figure.counted) uncounted.Add(ErrorOf(c, CostParameters()));
    const double published = PublishedFirstToken(c.figure);
    if (published > 0) first.Add(FirstTokenOf(c, CostParameters()) / published - 1);
  }
  PrintErrors("of these, not counted in the goals", uncounted, nullptr);
  PrintErrors("all speeds", all, nullptr);
  const PublishedSpread used = FirstTokenSpread();
  return PrintErrors("first token", first, &used) && same;
}

void PrintFirstTokens(const std::vector<Case>& cases) {
  std::printf(
      "\n| id | model | bits | machines | nodes | sharding | prompt | first token, s | predicted | "
      "error |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Case& c : cases) {
    const Figure& f = c.figure;
    const double published = PublishedFirstToken(f);
    if (published <= 0) continue;
    const double predicted = FirstTokenOf(c, CostParameters());
    std::printf("| %s | %s | %u | %s | %u | %s, %s | %u | %.3g | %.3g | %+.0f %% |\n", f.id.c_str(),
                f.model.c_str(), f.bits, MachinesText(f).c_str(), f.nodes, f.sharding.c_str(),
                f.transport.c_str(), f.prompt, published, predicted,
                (predicted / published - 1) * 100);
  }
}

// Of each figure; gives the errors of those that count.
Errors PrintSpeeds(const std::vector<Case>& cases, const std::vector<Case>& fitted) {
  const CostParameters used;
  Errors counted;
  std::printf(
      "\n| id | model | bits | machines | nodes | sharding | published | predicted | error | "
      "left out |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Case& c : cases) {
    const Figure& f = c.figure;
    if (f.speed <= 0) continue;
    std::vector<Case> others;
    for (const Case& one : fitted) {
      if (one.figure.id != f.id) others.push_back(one);
    }
    const double error = ErrorOf(c, used);
    if (f.counted) counted.Add(error);
    const std::string streams = f.streams > 1 ? absl::StrCat(", ", f.streams, " streams") : "";
    std::printf("| %s | %s | %u | %s | %u | %s, %s%s | %.1f | %.1f | %+.1f %% | ", f.id.c_str(),
                f.model.c_str(), f.bits, MachinesText(f).c_str(), f.nodes, f.sharding.c_str(),
                f.transport.c_str(), streams.c_str(), f.speed, f.speed * (1 + error), error * 100);
    if (others.size() == fitted.size()) {
      std::printf("not in the fit |\n");
    } else {
      std::printf("%+.1f %% |\n", 100 * ErrorOf(c, ParametersOf(Fit(others, TermsOf(used)))));
    }
  }
  return counted;
}

}  // namespace

int Calibrate(const std::string& models_path, const std::vector<std::string>& tables) {
  std::stringstream models;
  models << std::ifstream(models_path).rdbuf();
  const auto entries = ReadCatalogue(models.str());
  if (!entries.ok()) {
    std::fprintf(stderr, "calibration: %s\n", std::string(entries.status().message()).c_str());
    return 2;
  }
  std::vector<Case> cases, fitted;
  bool left_out = false;
  for (const std::string& table : tables) {
    for (const Figure& figure : ReadFigures(table)) {
      const absl::StatusOr<Case> c = CaseOf(figure, *entries);
      if (!c.ok()) {
        std::printf("%s is left out: %s\n", figure.id.c_str(),
                    std::string(c.status().message()).c_str());
        left_out = true;
        continue;
      }
      cases.push_back(*c);
      if (figure.fit && figure.speed > 0) fitted.push_back(*c);
    }
  }
  const CostParameters used;
  PrintTerms("used  ", TermsOf(used));
  PrintTerms("fitted", Fit(fitted, TermsOf(used)));
  const Errors counted = PrintSpeeds(cases, fitted);
  PrintFirstTokens(cases);
  if (counted.errors.empty()) return 1;
  const bool same = PrintKinds(cases);
  std::printf("\n");
  const bool signs = PrintSigns(cases, used);
  const double median = counted.Median();
  std::printf("\n%zu figures counted: median error %.1f %%, largest %.1f %%\n",
              counted.errors.size(), median * 100, counted.Largest() * 100);
  return median < 0.12 && counted.Largest() < 0.30 && signs && same && !left_out ? 0 : 1;
}

}  // namespace macrame::planner
