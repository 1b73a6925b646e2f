// Prints what the cost model says of published speeds: predicted, error, and the error with that
// figure left out of the fit of the parameters.
//
//   calibration MODELS.yaml CHIPS.yaml FIGURES.yaml …
//
// Exit 0: median error under 12 % and none over 30 % over all figures that could be predicted.

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/cost_model.h"

namespace macrame::planner {
namespace {

constexpr double kGroupBits = 32;  // a scale and a bias of 16 bits for each group

struct Model {
  YAML::Node card;
  double Number(const char* key, double otherwise = 0) const {
    return card[key] ? card[key].as<double>() : otherwise;
  }
};

struct Figure {
  std::string id, model, machines, transport, sharding;
  double bits = 0, speed = 0;
  int nodes = 0;
  bool fit = true;
};

double BytesPerWeight(double bits, double group) {
  return bits >= 16 ? bits / 8 : (bits + kGroupBits / group) / 8;
}

// Weights of one layer's attention.
double AttentionWeights(const Model& model) {
  const double hidden = model.Number("hidden"), heads = model.Number("heads");
  const YAML::Node latent = model.card["latent"];
  if (!latent) {
    const double width = model.Number("head_dim");
    return hidden * width * (2 * heads + 2 * model.Number("kv_heads"));
  }
  const auto part = [&](const char* key) { return latent[key] ? latent[key].as<double>() : 128; };
  const double q = part("q_rank"), kv = part("kv_rank"), rope = part("rope");
  const double nope = part("nope"), value = part("value");
  return hidden * q + q * heads * (nope + rope) + hidden * (kv + rope) +
         kv * heads * (nope + value) + heads * value * hidden;
}

std::optional<ModelWork> WorkOf(const Model& model, double bits) {
  for (const char* key : {"layers", "hidden"}) {
    if (!model.card[key]) return std::nullopt;
  }
  const double group = model.Number("group", 64);
  const double weight = BytesPerWeight(bits, group);
  const double rest = BytesPerWeight(model.Number("rest_bits", bits), group);
  ModelWork work;
  work.layers = static_cast<uint32_t>(model.Number("layers"));
  work.hidden_size = static_cast<uint32_t>(model.Number("hidden"));
  if (model.card["latent"]) work.attention = AttentionKind::kLatent;
  const double expert = 3 * model.Number("hidden") * model.Number("expert_width");
  const double mixed = work.layers - model.Number("dense_layers");
  work.experts = static_cast<uint32_t>(model.Number("experts"));
  work.experts_active = static_cast<uint32_t>(model.Number("active"));
  work.expert_weight_bytes = expert * mixed * work.experts * weight;
  if (!model.card["heads"] || !model.card["head_dim"] || !model.card["intermediate"]) {
    // Only the makers' own count of active parameters is known.
    const double active = model.Number("active_parameters") * 1e9;
    work.shared_weight_bytes = std::max(0.0, active - expert * mixed * work.experts_active) * rest;
    return work;
  }
  const double dense_layers = work.experts == 0 ? work.layers : model.Number("dense_layers");
  const double shared = AttentionWeights(model) * work.layers +
                        3 * model.Number("hidden") * model.Number("intermediate") * dense_layers +
                        expert * model.Number("shared") * mixed +
                        model.Number("hidden") * model.Number("vocab");
  work.shared_weight_bytes = shared * rest;
  return work;
}

// Time per token is linear in these four: 1 / efficiency, the two overheads, the collective.
constexpr size_t kTerms = 4;
using Terms = std::array<double, kTerms>;
constexpr double kNothing = 1e-12;  // 1 / efficiency can't be 0

Terms TermsOf(const CostParameters& p) {
  return {1 / p.bandwidth_efficiency, p.layer_overhead_us, p.latent_attention_overhead_us,
          p.rdma_collective_us};
}

CostParameters ParametersOf(const Terms& terms) {
  CostParameters p;
  p.bandwidth_efficiency = 1 / terms[0];
  p.layer_overhead_us = terms[1];
  p.latent_attention_overhead_us = terms[2];
  p.rdma_collective_us = terms[3];
  return p;
}

struct Case {
  Figure figure;
  ModelWork work;
  double bandwidth = 0;
};

StepTime Predict(const Case& c, const CostParameters& parameters) {
  const int n = c.figure.nodes;
  std::vector<RankWork> ranks(n, RankWork{c.bandwidth, 1.0 / n, c.work.layers});
  if (c.figure.sharding != "pipeline") {
    const double collective =
        c.figure.transport == "rdma" ? parameters.rdma_collective_us : parameters.tcp_hop_us / 2;
    return TensorStep(c.work, ranks, StepLoad{}, collective, parameters);
  }
  for (int i = 0; i < n; ++i) ranks[i].layers = c.work.layers / n + (i < int(c.work.layers % n));
  return PipelineStep(c.work, ranks, StepLoad{}, parameters.tcp_hop_us, parameters);
}

// What each term is multiplied by in this case.
Terms Coefficients(const Case& c) {
  Terms row;
  for (size_t i = 0; i < kTerms; ++i) {
    Terms one{kNothing, 0, 0, 0};
    one[i] = 1;
    row[i] = Predict(c, ParametersOf(one)).total_us();
  }
  return row;
}

// Least squares of relative errors; a term that would come out negative is held at zero.
Terms Fit(const std::vector<Case>& cases, const Terms& start) {
  Terms terms = start;
  for (int round = 0; round < 20000; ++round) {  // coordinate descent: each step exact
    for (size_t k = 0; k < kTerms; ++k) {
      double top = 0, bottom = 0;
      for (const Case& c : cases) {
        const Terms row = Coefficients(c);
        const double wanted = 1e6 / c.figure.speed;
        double others = 0;
        for (size_t j = 0; j < kTerms; ++j) others += j == k ? 0 : row[j] * terms[j];
        top += row[k] * (wanted - others) / (wanted * wanted);
        bottom += row[k] * row[k] / (wanted * wanted);
      }
      if (bottom > 0) terms[k] = std::max(k == 0 ? 1.0 : 0.0, top / bottom);
    }
  }
  return terms;
}

std::vector<Figure> ReadFigures(const std::string& path) {
  std::vector<Figure> figures;
  for (const YAML::Node& node : YAML::LoadFile(path)["figures"]) {
    Figure figure;
    figure.id = node["id"] ? node["id"].as<std::string>() : "";
    figure.model = node["model"].as<std::string>();
    figure.machines = node["machines"].as<std::string>();
    figure.transport = node["transport"].as<std::string>();
    figure.sharding = node["sharding"].as<std::string>();
    figure.bits = node["bits"].as<double>();
    figure.nodes = node["nodes"].as<int>();
    figure.speed = node["tokens_per_second"].as<double>();
    figure.fit = !node["fit"] || node["fit"].as<bool>();
    figures.push_back(figure);
  }
  return figures;
}

std::optional<Case> CaseOf(const Figure& figure, const YAML::Node& models,
                           const YAML::Node& chips) {
  Case c;
  c.figure = figure;
  for (const YAML::Node& card : models["models"]) {
    if (card["name"].as<std::string>() != figure.model) continue;
    const std::optional<ModelWork> work = WorkOf(Model{card}, figure.bits);
    if (work.has_value()) c.work = *work;
  }
  for (const YAML::Node& chip : chips["chips"]) {
    if (chip["name"].as<std::string>() != figure.machines) continue;
    const YAML::Node& rates = chip["bandwidth_gb_s"];
    c.bandwidth = rates[rates.size() - 1].as<double>() * 1e9;  // of the larger GPU
  }
  if (c.work.layers == 0 || c.bandwidth == 0) return std::nullopt;
  return c;
}

double ErrorOf(const Case& c, const CostParameters& parameters) {
  return TokensPerSecond(Predict(c, parameters), StepLoad{}) / c.figure.speed - 1;
}

int Run(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: calibration MODELS.yaml CHIPS.yaml FIGURES.yaml …\n");
    return 2;
  }
  const YAML::Node models = YAML::LoadFile(argv[1]), chips = YAML::LoadFile(argv[2]);
  std::vector<Case> cases, fitted;
  for (int i = 3; i < argc; ++i) {
    for (const Figure& figure : ReadFigures(argv[i])) {
      const std::optional<Case> c = CaseOf(figure, models, chips);
      if (!c.has_value()) {
        std::printf("%-6s %s on %s: not in the catalogue\n", figure.id.c_str(),
                    figure.model.c_str(), figure.machines.c_str());
        continue;
      }
      cases.push_back(*c);
      if (figure.fit && i == 3) fitted.push_back(*c);
    }
  }
  const Terms terms = Fit(fitted, TermsOf(CostParameters{}));
  std::printf(
      "fitted: bandwidth efficiency %.3f, layer %.1f us, latent attention %.1f us, "
      "RDMA collective %.1f us\n\n",
      1 / terms[0], terms[1], terms[2], terms[3]);
  std::printf("%-6s %-32s %4s %5s %-9s %9s %9s %7s %9s\n", "id", "model", "bits", "nodes",
              "sharding", "published", "predicted", "error", "left out");
  std::vector<double> errors;
  for (const Case& c : cases) {
    std::vector<Case> others;
    for (const Case& f : fitted) {
      if (f.figure.id != c.figure.id) others.push_back(f);
    }
    const double error = ErrorOf(c, CostParameters{});
    const double left_out =
        others.size() == fitted.size() ? error : ErrorOf(c, ParametersOf(Fit(others, TermsOf({}))));
    errors.push_back(std::abs(error));
    std::printf("%-6s %-32s %4.0f %5d %-9s %9.1f %9.1f %+6.1f%% %+8.1f%%\n", c.figure.id.c_str(),
                c.figure.model.c_str(), c.figure.bits, c.figure.nodes, c.figure.sharding.c_str(),
                c.figure.speed, c.figure.speed * (1 + error), error * 100, left_out * 100);
  }
  if (errors.empty()) return 1;
  std::sort(errors.begin(), errors.end());
  const double median = errors[errors.size() / 2];
  std::printf("\n%zu figures: median error %.1f %%, largest %.1f %%\n", errors.size(), median * 100,
              errors.back() * 100);
  return median < 0.12 && errors.back() < 0.30 ? 0 : 1;
}

}  // namespace
}  // namespace macrame::planner

int main(int argc, char** argv) {
  try {
    return macrame::planner::Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "calibration: %s\n", error.what());
    return 2;
  }
}
