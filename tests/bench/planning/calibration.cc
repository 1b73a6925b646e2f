#include "tests/bench/planning/calibration.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>

#include "planner/chip_table.h"
#include "planner/described/model_card.h"
#include "planner/gang.h"

namespace macrame::planner {
namespace {

struct Figure {
  std::string id, model, machines, transport, sharding;
  uint32_t bits = 0, nodes = 0;
  double speed = 0, context = 0;
  bool fit = true;
  bool counted = true;
};

// One figure with all that predicting it takes.
struct Case {
  Figure figure;
  v1::PlanRequest request;
  double context = 0;
};

// A step's time is a sum of these, each times how often it comes: 1 / efficiency and six times.
constexpr size_t kTerms = 7;
using Terms = std::array<double, kTerms>;
constexpr double kNothing = 1e-12;  // 1 / efficiency can't be 0

Terms TermsOf(const CostParameters& p) {
  return {1 / p.bandwidth_efficiency, p.layer_overhead_us,
          p.expert_overhead_us,       p.latent_attention_overhead_us,
          p.collective_wait_us,       p.tcp_hop_us,
          p.step_overhead_us};
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
  p.compute_efficiency = 1e9;  // one token is never arithmetic
  return p;
}

bool IsPipeline(const Figure& figure) {
  return figure.sharding == "pipeline" || figure.sharding == "layers";
}

bool IsRdma(const Figure& figure) {
  return figure.transport != "tcp" && figure.transport != "ring" && figure.transport != "none" &&
         figure.transport != "ethernet";
}

Gang GangOf(const Case& c) {
  const uint32_t nodes = c.figure.nodes;
  const uint32_t layers = c.request.model().layer_count();
  Gang gang;
  if (IsRdma(c.figure)) gang.fabric.backend = Fabric::Backend::kJaccl;
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
  for (uint32_t i = 0; i < nodes; ++i) stage.nodes.push_back(i);
  gang.stages.push_back(stage);
  return gang;
}

double StepUs(const Case& c, const CostParameters& parameters) {
  std::vector<Candidate> candidates;
  for (const v1::PlannerNode& node : c.request.nodes()) candidates.push_back(CandidateOf(node));
  const LinkCosts links(c.request, candidates);
  GangJudge judge(c.request.model(), candidates, links, {static_cast<uint32_t>(c.context), 1},
                  parameters);
  return judge.Step(GangOf(c), judge.DecodeOf(1)).total_us();
}

// What each term is multiplied by in this case; the last entry: what none of them explains (links).
std::array<double, kTerms + 1> Coefficients(const Case& c) {
  std::array<double, kTerms + 1> row;
  const Terms none{kNothing, 0, 0, 0, 0, 0, 0};
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

std::vector<Figure> ReadFigures(const std::string& path) {
  std::vector<Figure> figures;
  for (const YAML::Node& node : YAML::LoadFile(path)["figures"]) {
    const auto text = [&](const char* key, const char* otherwise) {
      return node[key] ? node[key].as<std::string>() : otherwise;
    };
    Figure figure;
    figure.id = text("id", "");
    figure.model = text("model", "");
    figure.machines = text("machines", "");
    figure.transport = text("transport", "none");
    figure.sharding = text("sharding", "none");
    figure.bits =
        node["bits"] ? node["bits"].as<uint32_t>() : BitsInName(figure.model).value_or(16);
    figure.nodes = node["nodes"] ? node["nodes"].as<uint32_t>() : 1;
    figure.speed = node["tokens_per_second"].as<double>();
    figure.context = node["context"] ? node["context"].as<double>() : 0;
    figure.fit = !node["fit"] || node["fit"].as<bool>();
    figure.counted = !node["counted"] || node["counted"].as<bool>();
    figures.push_back(figure);
  }
  return figures;
}

std::optional<Case> CaseOf(const Figure& figure, const std::vector<ModelCard>& cards) {
  const auto card = FindModelCard(cards, figure.model);
  const Chip* chip = FindChip(figure.machines);
  if (!card.ok() || chip == nullptr || figure.nodes == 0 || figure.speed <= 0) return std::nullopt;
  Case c;
  c.figure = figure;
  c.context = figure.context > 0 ? figure.context : kPredictedPositions;
  *c.request.mutable_model() = DescribeCard(**card, figure.bits);
  for (uint32_t i = 0; i < figure.nodes; ++i) {
    v1::PlannerNode& node = *c.request.add_nodes();
    node.set_node_id("node-" + std::to_string(i));
    node.set_chip(std::string(chip->name));
    node.set_gpu_cores(chip->gpu_cores[1]);
  }
  for (uint32_t i = 0; i < figure.nodes; ++i) {
    for (uint32_t j = 0; j < figure.nodes; ++j) {
      v1::PlannerLink& link = *c.request.add_links();
      link.set_from_node_id("node-" + std::to_string(i));
      link.set_to_node_id("node-" + std::to_string(j));
      link.set_medium(v1::LINK_MEDIUM_THUNDERBOLT);
      link.add_backends("ring");
      if (IsRdma(figure)) link.add_backends("jaccl");
    }
  }
  return c;
}

double ErrorOf(const Case& c, const CostParameters& parameters) {
  return 1e6 / StepUs(c, parameters) / c.figure.speed - 1;
}

void PrintTerms(const char* what, const Terms& terms) {
  std::printf(
      "%s: bandwidth efficiency %.3f, layer %.1f us, experts %.1f us more, latent "
      "attention %.1f us more, collective wait %.1f us, TCP hop %.0f us, step %.0f us\n",
      what, 1 / terms[0], terms[1], terms[2], terms[3], terms[4], terms[5], terms[6]);
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

}  // namespace

int Calibrate(const std::string& models_path, const std::vector<std::string>& tables) {
  std::stringstream models;
  models << std::ifstream(models_path).rdbuf();
  const auto cards = ReadModelCards(models.str());
  if (!cards.ok()) {
    std::fprintf(stderr, "calibration: %s\n", std::string(cards.status().message()).c_str());
    return 2;
  }
  std::vector<Case> cases, fitted;
  for (const std::string& table : tables) {
    for (const Figure& figure : ReadFigures(table)) {
      const std::optional<Case> c = CaseOf(figure, *cards);
      if (!c.has_value()) {
        std::printf("%-6s %s on %s: not in the catalogue\n", figure.id.c_str(),
                    figure.model.c_str(), figure.machines.c_str());
        continue;
      }
      cases.push_back(*c);
      if (figure.fit) fitted.push_back(*c);
    }
  }
  const CostParameters used;
  PrintTerms("used  ", TermsOf(used));
  PrintTerms("fitted", Fit(fitted, TermsOf(used)));
  std::printf(
      "\n| id | model | bits | machines | nodes | sharding | published | predicted | error | "
      "left out |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  std::vector<double> errors;
  for (const Case& c : cases) {
    std::vector<Case> others;
    for (const Case& f : fitted) {
      if (f.figure.id != c.figure.id) others.push_back(f);
    }
    const double error = ErrorOf(c, used);
    const Figure& f = c.figure;
    if (f.counted) errors.push_back(std::abs(error));
    std::printf("| %s | %s | %u | %s | %u | %s, %s | %.1f | %.1f | %+.1f %% | ", f.id.c_str(),
                f.model.c_str(), f.bits, f.machines.c_str(), f.nodes, f.sharding.c_str(),
                f.transport.c_str(), f.speed, f.speed * (1 + error), error * 100);
    if (others.size() == fitted.size()) {
      std::printf("not in the fit |\n");
    } else {
      std::printf("%+.1f %% |\n", 100 * ErrorOf(c, ParametersOf(Fit(others, TermsOf(used)))));
    }
  }
  if (errors.empty()) return 1;
  std::printf("\n");
  const bool signs = PrintSigns(cases, used);
  std::sort(errors.begin(), errors.end());
  const double median = errors[errors.size() / 2];
  std::printf("\n%zu figures counted: median error %.1f %%, largest %.1f %%\n", errors.size(),
              median * 100, errors.back() * 100);
  return median < 0.12 && errors.back() < 0.30 && signs ? 0 : 1;
}

}  // namespace macrame::planner
