#include "planner/offline/capacity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/advice.h"
#include "planner/link_costs.h"
#include "planner/offline/catalogue.h"
#include "planner/offline/cluster_file.h"
#include "planner/planner.h"
#include "proto/backends.h"
#include "proto/bytes.h"
#include "proto/reason_codes.h"
#include "proto/suggestions.h"

namespace macrame::planner {
namespace {

// As in the published sum that ours is checked against: 50 users on the enterprise tier.
constexpr uint32_t kUsersDefault = 50;
constexpr uint32_t kMonthsDefault = 36;
constexpr uint32_t kUsersAtWorkMax = 4096;
constexpr char kCurrencyDefault[] = "£";
constexpr double kTariffDefault = 0.25;
constexpr double kDutyDefault = 0.20;
constexpr uint32_t kContextDefault = 4096;
constexpr double kTokensPerMillion = 1e6;
constexpr double kJoulesPerKilowattHour = 3.6e6;

// Some of each size that people ask about.
constexpr std::array<std::string_view, 7> kUsualModels = {
    "Llama-3.1-8B-Instruct", "Qwen3-30B-A3B", "Llama-3.3-70B-Instruct", "gpt-oss-120b",
    "Qwen3-235B-A22B",       "DeepSeek-V3.1", "Kimi-K2-Thinking"};
constexpr std::array<uint32_t, 3> kBitsLadder = {8, 6, 4};

std::string Text(std::string_view view) { return std::string(view); }

struct Inputs {
  v1::PlanRequest cluster;
  v1::PlanRequest desks;  // the same machines, cabled the other way; no nodes: there is none
  std::string title;
  PublishedFigures published;
  std::vector<MachineConfiguration> unsold;
  std::string currency;
  uint32_t users = 0, months = 0;
  double price = 0, tariff = 0, duty = 0;
  double peak_watts = 0, idle_watts = 0;  // of all machines; 0: not known
  double told_watts = 0;                  // peak_watts, where the question says it
};

std::string Money(const Inputs& inputs, double amount) {
  return absl::StrFormat("%s%.2f", inputs.currency, amount);
}

std::string RoundMoney(const Inputs& inputs, double amount) {
  return amount == std::floor(amount) ? absl::StrFormat("%s%.0f", inputs.currency, amount)
                                      : Money(inputs, amount);
}

// In a sum, so that it can be done again: as many decimals as count.
std::string Exact(const Inputs& inputs, double amount, int decimals = 4) {
  if (amount == std::floor(amount)) return RoundMoney(inputs, amount);
  std::string text = absl::StrFormat("%s%.*f", inputs.currency, decimals, amount);
  const size_t pence = text.rfind('.') + 3;
  while (text.size() > pence && text.back() == '0') text.pop_back();
  return text;
}

// Of a kilowatt hour.
std::string Tariff(const Inputs& inputs) {
  constexpr int kDecimals = 6;
  const bool is_whole = inputs.tariff == std::floor(inputs.tariff);
  return is_whole ? Money(inputs, inputs.tariff) : Exact(inputs, inputs.tariff, kDecimals);
}

std::string Plain(double value) {
  constexpr double kRounding = 1e-9;  // 100 × 0.58 is not quite 58
  return std::abs(value - std::round(value)) < kRounding ? absl::StrFormat("%.0f", value)
                                                         : absl::StrFormat("%.2f", value);
}

void AddLine(const std::string& what, const std::string& sum, const std::string& result,
             v1::CapacityReport* report) {
  v1::CapacityLine& line = *report->add_lines();
  line.set_what(what);
  line.set_sum(sum);
  line.set_result(result);
}

absl::Status Check(const v1::CapacityQuestion& question) {
  for (const double value :
       {question.price(), question.tariff(), question.duty(), question.peak_watts(),
        question.idle_watts(), question.cloud_price(), question.tokens_per_second()}) {
    if (!(value >= 0 && value < 1e12)) {
      return absl::InvalidArgumentError(absl::StrCat("a figure of ", value, " makes no sense"));
    }
  }
  if (question.duty() > 1) {
    return absl::InvalidArgumentError("the duty is a part of the time, between 0 and 1");
  }
  if (question.idle_watts() > question.peak_watts() && question.peak_watts() > 0) {
    return absl::InvalidArgumentError("more power idle than at peak");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> TierNamed(const std::string& name) {
  std::vector<std::string> names;
  for (const TierFile& tier : TierFiles()) {
    if (name == tier.name) return tier.yaml;
    names.push_back(Text(tier.name));
  }
  return absl::InvalidArgumentError(absl::StrCat("no tier is called '", name, "'; there are ",
                                                 absl::StrJoin(names, ", "),
                                                 DidYouMean(name, names)));
}

std::string NotSold(const MachineConfiguration& machine) {
  return absl::StrCat(machine.Name(), " is not sold: ", Text(machine.machine->name), " comes with ",
                      absl::StrJoin(machine.machine->memory_gib, ", "), " GB");
}

absl::Status ReadFile(const std::string& yaml, Inputs* inputs) {
  auto cluster = ReadClusterFile(yaml);
  if (!cluster.ok()) return cluster.status();
  inputs->cluster = std::move(cluster->request);
  inputs->published = std::move(cluster->published);
  inputs->unsold = std::move(cluster->unsold);
  inputs->title = cluster->title.empty() ? absl::StrCat(inputs->cluster.nodes_size(), " machines")
                                         : cluster->title;
  return absl::OkStatus();
}

absl::Status ReadMachines(const v1::CapacityQuestion& question, Inputs* inputs) {
  if (!question.cluster_yaml().empty()) return ReadFile(question.cluster_yaml(), inputs);
  if (!question.tier().empty()) {
    const auto tier = TierNamed(question.tier());
    return tier.ok() ? ReadFile(Text(*tier), inputs) : tier.status();
  }
  if (question.buy().empty()) {
    return absl::InvalidArgumentError("name machines to buy, a tier, or a cluster's description");
  }
  const auto machines = ParsePurchase(question.buy());
  if (!machines.ok()) return machines.status();
  for (const MachineConfiguration& machine : *machines) {
    if (!machine.is_sold) return absl::InvalidArgumentError(NotSold(machine));
  }
  inputs->cluster = ClusterOf(*machines);
  const auto able = std::count_if(
      machines->begin(), machines->end(),
      [](const MachineConfiguration& machine) { return machine.machine->rdma_ports > 0; });
  if (able > kMeshRanksMax) inputs->desks = ClusterOf(*machines, BeyondFour::kDesks);
  inputs->title = absl::StrCat(machines->size(), machines->size() == 1 ? " machine" : " machines");
  return absl::OkStatus();
}

// Of all nodes together; 0 when one's is not known.
template <typename Watts>
double SumOfAll(const v1::PlanRequest& cluster, const Watts& watts) {
  double sum = 0;
  for (const v1::PlannerNode& node : cluster.nodes()) {
    if (watts(node) <= 0) return 0;
    sum += watts(node);
  }
  return sum;
}

double PeakOf(const v1::PlanRequest& cluster) {
  return SumOfAll(cluster, [](const v1::PlannerNode& node) { return node.power_peak_watts(); });
}

double IdleOf(const v1::PlanRequest& cluster) {
  return SumOfAll(cluster, [](const v1::PlannerNode& node) { return node.power_idle_watts(); });
}

void ReadRates(const v1::CapacityQuestion& question, uint32_t users, Inputs* inputs) {
  const std::string& published = inputs->published.currency;
  inputs->currency = !question.currency().empty() ? question.currency()
                     : published.empty()          ? kCurrencyDefault
                                                  : published;
  inputs->users = question.users() > 0 ? question.users() : users;
  inputs->months = question.months() > 0 ? question.months() : kMonthsDefault;
  inputs->tariff = question.has_tariff() ? question.tariff() : kTariffDefault;
  inputs->duty = question.has_duty() ? question.duty() : kDutyDefault;
}

absl::StatusOr<Inputs> ReadInputs(const v1::CapacityQuestion& question) {
  if (auto bad = Check(question); !bad.ok()) return bad;
  Inputs inputs;
  if (auto bad = ReadMachines(question, &inputs); !bad.ok()) return bad;
  ReadRates(question, kUsersDefault, &inputs);
  const PublishedFigures& published = inputs.published;
  const auto first = [](std::initializer_list<double> figures) {
    const auto found = std::find_if(figures.begin(), figures.end(), [](double x) { return x > 0; });
    return found == figures.end() ? 0 : *found;
  };
  inputs.price = first({question.price(), published.price});
  inputs.peak_watts = first({question.peak_watts(), published.peak_watts, PeakOf(inputs.cluster)});
  inputs.told_watts = question.peak_watts();
  inputs.idle_watts = first({question.idle_watts(), published.idle_watts, IdleOf(inputs.cluster)});
  return inputs;
}

// Energy and hardware, a user and month.
void AddCosts(const Inputs& inputs, double cloud_price, v1::CapacityReport* report) {
  const std::string users = absl::StrCat(inputs.users);
  constexpr int kDecimalsOfAnHour = 8;  // of which a month has many
  double energy = 0, idle = 0;
  if (inputs.peak_watts > 0) {
    const double hour = inputs.peak_watts / 1000 * inputs.tariff;
    AddLine("energy of an hour at peak",
            absl::StrCat(Plain(inputs.peak_watts), " W / 1000 × ", Tariff(inputs)),
            Money(inputs, hour), report);
    energy = hour * kHoursPerMonth * inputs.duty;
    AddLine("energy of a month, all machines",
            absl::StrCat(Exact(inputs, hour, kDecimalsOfAnHour), " × 24 h × 30 d × ",
                         Plain(100 * inputs.duty), " %"),
            Money(inputs, energy), report);
    AddLine("energy, a user and month", absl::StrCat(Exact(inputs, energy), " / ", users),
            Money(inputs, energy / inputs.users), report);
  }
  const double hardware = inputs.price / inputs.months / inputs.users;
  if (inputs.price > 0) {
    AddLine("hardware, a user and month",
            absl::StrCat(RoundMoney(inputs, inputs.price), " / ", inputs.months, " / ", users),
            Money(inputs, hardware), report);
    AddLine("together, a user and month",
            absl::StrCat(Exact(inputs, energy / inputs.users), " + ", Exact(inputs, hardware)),
            Money(inputs, energy / inputs.users + hardware), report);
  }
  if (inputs.idle_watts > 0) {
    idle = inputs.idle_watts / 1000 * kHoursPerMonth * (1 - inputs.duty) * inputs.tariff;
    AddLine("energy of the idle hours of a month",
            absl::StrCat(Plain(inputs.idle_watts), " W / 1000 × 24 h × 30 d × ",
                         Plain(100 * (1 - inputs.duty)), " % × ", Tariff(inputs)),
            Money(inputs, idle), report);
    AddLine("energy with idle hours, a user and month",
            absl::StrCat("(", Exact(inputs, energy), " + ", Exact(inputs, idle), ") / ", users),
            Money(inputs, (energy + idle) / inputs.users), report);
    if (inputs.price > 0) {
      AddLine("together with idle hours, a user and month",
              absl::StrCat(Exact(inputs, (energy + idle) / inputs.users), " + ",
                           Exact(inputs, hardware)),
              Money(inputs, (energy + idle) / inputs.users + hardware), report);
    }
  }
  if (cloud_price > 0 && inputs.price > 0) {
    AddLine("months until it costs less than the cloud, hardware alone",
            absl::StrCat(RoundMoney(inputs, inputs.price), " / ", RoundMoney(inputs, cloud_price)),
            absl::StrFormat("%.1f", inputs.price / cloud_price), report);
    if (energy > 0) {
      AddLine("the same with energy",
              absl::StrCat(RoundMoney(inputs, inputs.price), " / (",
                           RoundMoney(inputs, cloud_price), " - ", Exact(inputs, energy), ")"),
              cloud_price > energy ? absl::StrFormat("%.1f", inputs.price / (cloud_price - energy))
                                   : "never",
              report);
    }
  }
}

void AddLinesOfPublishedUsers(const Inputs& inputs, v1::CapacityReport* report) {
  const uint32_t low = inputs.published.users_low, high = inputs.published.users_high;
  if (low == 0 || inputs.price == 0) return;
  const double month = inputs.price / inputs.months;
  AddLine(
      absl::StrCat("hardware, a user and month, with ", low, " to ", high, " users"),
      absl::StrCat(RoundMoney(inputs, inputs.price), " / ", inputs.months, " / ", low, " … ", high),
      absl::StrCat(Money(inputs, month / low), " … ", Money(inputs, month / high)), report);
}

// A model that is asked about: an entry, at any number of bits, or files, at their own.
struct AskedModel {
  const CatalogueEntry* entry = nullptr;
  v1::ModelDescription files;    // without an entry
  std::vector<uint32_t> ladder;  // of bits that are tried, the most first

  const std::string& name() const { return entry == nullptr ? files.name() : entry->name; }
  v1::ModelDescription At(uint32_t bits) const {
    return entry == nullptr ? files : DescribeForPlan(*entry, bits);
  }
};

absl::StatusOr<AskedModel> AskedEntry(const std::vector<CatalogueEntry>& entries,
                                      const std::string& name) {
  const auto entry = FindEntry(entries, name);
  if (!entry.ok()) return entry.status();
  AskedModel asked;
  asked.entry = *entry;
  asked.ladder.assign(kBitsLadder.begin(), kBitsLadder.end());
  // Bits that its makers never gave it are none to try.
  const uint32_t own = asked.entry->bits;
  std::erase_if(asked.ladder, [&](uint32_t bits) { return own > 0 && bits > own; });
  if (asked.ladder.empty()) asked.ladder = {own};
  if (const auto bits = BitsInName(name); bits.has_value()) asked.ladder = {*bits};
  return asked;
}

AskedModel AskedFiles(const v1::ModelDescription& files) {
  const uint32_t bits = files.quantization().bits();
  const uint32_t whole = files.dtype() == "float32" ? 32 : 16;
  return {nullptr, files, {bits > 0 ? bits : whole}};
}

// Those that the question names, some of each size when it names none.
absl::StatusOr<std::vector<AskedModel>> AskedModels(const v1::CapacityQuestion& question,
                                                    const std::vector<CatalogueEntry>& entries) {
  std::vector<std::string> names(question.models().begin(), question.models().end());
  if (names.empty() && question.described().empty()) {
    names.assign(kUsualModels.begin(), kUsualModels.end());
  }
  std::vector<AskedModel> asked;
  for (const std::string& name : names) {
    auto entry = AskedEntry(entries, name);
    if (!entry.ok()) return entry.status();
    asked.push_back(*std::move(entry));
  }
  for (const v1::ModelDescription& files : question.described()) {
    asked.push_back(AskedFiles(files));
  }
  return asked;
}

// The faster of the ways to cable the machines.
v1::PlanResult PlanOn(const Inputs& inputs, v1::PlanRequest request) {
  v1::PlanResult result = PlanModel(request);
  if (inputs.desks.nodes().empty()) return result;
  *request.mutable_links() = inputs.desks.links();
  v1::PlanResult other = PlanModel(request);
  const bool faster = other.plan().prediction().tokens_per_second() >
                      result.plan().prediction().tokens_per_second();
  return faster ? other : result;
}

uint32_t UsersAtWork(const Inputs& inputs) {
  return std::clamp<uint32_t>(static_cast<uint32_t>(std::lround(inputs.users * inputs.duty)), 1,
                              kUsersAtWorkMax);
}

// `backend`, when it is asked for: between the ranks.
absl::StatusOr<v1::CapacityModel> TryModel(const Inputs& inputs, const AskedModel& asked,
                                           uint32_t bits, uint32_t context,
                                           std::string* backend = nullptr) {
  v1::PlanRequest request = inputs.cluster;
  *request.mutable_model() = asked.At(bits);
  const uint32_t longest = request.model().context_length_max();
  request.mutable_placement()->set_context_length(longest > 0 ? std::min(context, longest)
                                                              : context);
  // Those at work at the same time need their caches.
  const uint32_t at_work = UsersAtWork(inputs);
  request.mutable_placement()->set_users(at_work);
  request.mutable_placement()->set_concurrent_sequences(at_work);
  v1::CapacityModel row;
  row.set_model(asked.name());
  row.set_bits(bits);
  row.set_weights_bytes(ModelBytes(request.model()));
  const v1::PlanResult result = PlanOn(inputs, request);
  row.set_fits(result.has_plan());
  if (!result.has_plan()) {
    if (result.failure().code() == reasons::kModelConfigInvalid) {
      return absl::InvalidArgumentError(result.failure().message());
    }
    row.set_why_not(result.failure().message());
    return row;
  }
  const v1::Plan& plan = result.plan();
  row.set_nodes(plan.world_size());
  row.set_shape(ShapeName({plan.tp(), plan.pp()}));
  if (backend != nullptr) *backend = plan.backend();
  *row.mutable_prediction() = plan.prediction();
  const double watts = inputs.told_watts > 0
                           ? inputs.told_watts * plan.world_size() / inputs.cluster.nodes_size()
                           : plan.prediction().power_watts();
  if (watts > 0) {
    row.set_joules_per_token(watts / plan.prediction().tokens_per_second());
    row.set_cost_per_million_tokens(row.joules_per_token() * kTokensPerMillion /
                                    kJoulesPerKilowattHour * inputs.tariff);
  }
  return row;
}

uint32_t AskedContext(const v1::CapacityQuestion& question) {
  return question.context_length() > 0 ? question.context_length() : kContextDefault;
}

// What was asked for and is predicted smaller.
void WarnOfLimits(const Inputs& inputs, const v1::CapacityQuestion& question,
                  const std::vector<AskedModel>& models, v1::CapacityReport* report) {
  std::vector<std::string> shorter;
  for (const AskedModel& asked : models) {
    const uint32_t own = asked.At(asked.ladder.front()).context_length_max();
    if (own == 0 || question.context_length() <= own) continue;
    shorter.push_back(absl::StrCat(asked.name(), " ", own));
  }
  if (!shorter.empty()) {
    report->add_warnings(absl::StrCat("a context of ", question.context_length(),
                                      " was asked for; predicted with the most that a model was ",
                                      "made for: ", NameList(shorter)));
  }
  if (inputs.users * inputs.duty > kUsersAtWorkMax + 0.5) {
    report->add_warnings(absl::StrCat("of ", inputs.users, " users ", kUsersAtWorkMax,
                                      " at work are predicted, the most that can be"));
  }
}

// Of each model the most bits that fit; the row of the fewest says why none does.
void WarnOfOneUsersEnergy(v1::CapacityReport* report) {
  const auto costed =
      std::find_if(report->models().begin(), report->models().end(),
                   [](const v1::CapacityModel& row) { return row.joules_per_token() > 0; });
  if (costed == report->models().end()) return;
  report->add_warnings(
      "J/TOKEN and A MILLION tokens are electricity while one user alone is answered, by the power "
      "that 'plan' says as well: of several stages one works at a time. The more are answered at "
      "once, the less a token takes");
}

absl::Status AddModels(const Inputs& inputs, const v1::CapacityQuestion& question,
                       const std::vector<CatalogueEntry>& entries, v1::CapacityReport* report) {
  const uint32_t context = AskedContext(question);
  const auto models = AskedModels(question, entries);
  if (!models.ok()) return models.status();
  WarnOfLimits(inputs, question, *models, report);
  for (const AskedModel& asked : *models) {
    v1::CapacityModel last;
    for (const uint32_t bits : asked.ladder) {
      auto row = TryModel(inputs, asked, bits, context);
      if (!row.ok()) return row.status();
      last = *std::move(row);
      if (last.fits()) break;
    }
    *report->add_models() = std::move(last);
  }
  WarnOfOneUsersEnergy(report);
  return absl::OkStatus();
}

void Describe(const Inputs& inputs, v1::CapacityReport* report) {
  report->set_currency(inputs.currency);
  uint64_t memory = 0;
  for (const v1::PlannerNode& node : inputs.cluster.nodes()) {
    memory += node.memory_total_bytes();
    report->add_machines(absl::StrCat(node.hostname(), ": ", node.chip(), ", ",
                                      FormatBytes(Bytes(node.memory_total_bytes()))));
  }
  report->set_memory_bytes(memory);
  if (inputs.price > 0) {
    AddLine("price of a gigabyte",
            absl::StrCat(RoundMoney(inputs, inputs.price), " / ",
                         Plain(static_cast<double>(memory) / kBytesPerGiB), " GB"),
            Money(inputs, inputs.price / (static_cast<double>(memory) / kBytesPerGiB)), report);
  }
  if (!inputs.desks.nodes().empty()) {
    report->add_warnings(
        "each model is predicted with the faster of two ways to cable these machines, desks of up "
        "to four or one ring; 'clusterctl topology advise --model' says which");
  }
  if (!inputs.unsold.empty()) report->add_warnings(NotSold(inputs.unsold.front()));
  for (const std::string& note : inputs.published.notes) report->add_claims(note);
}

// The sums take the published figure, a plan what the machines' makers state.
void WarnOfOtherPower(const Inputs& inputs, v1::CapacityReport* report) {
  const double makers = PeakOf(inputs.cluster);
  if (inputs.told_watts > 0 || inputs.published.peak_watts <= 0 || makers <= 0) return;
  if (inputs.published.peak_watts == makers) return;
  report->add_warnings(absl::StrCat("the sums take the ", Plain(inputs.published.peak_watts),
                                    " W that are published; the makers ",
                                    "of these machines state ", Plain(makers),
                                    " W, which J/TOKEN and 'plan' go by"));
}

// Nothing is summed of machines one of which draws nobody knows what.
void WarnOfUnknownPower(const Inputs& inputs, v1::CapacityReport* report) {
  std::vector<std::string> peak, idle;
  for (const v1::PlannerNode& node : inputs.cluster.nodes()) {
    if (node.power_peak_watts() <= 0) peak.push_back(node.hostname());
    if (node.power_idle_watts() <= 0) idle.push_back(node.hostname());
  }
  if (inputs.peak_watts == 0) {
    report->add_warnings(absl::StrCat("the power of ", absl::StrJoin(peak, ", "),
                                      " is not known, so no energy is summed; say --peak-watts"));
  } else if (inputs.idle_watts == 0) {
    report->add_warnings(absl::StrCat("the idle power of ", absl::StrJoin(idle, ", "),
                                      " is not known; say --idle-watts"));
  }
}

std::string OneDecimal(double value) { return absl::StrFormat("%.1f", value); }

std::string Watts(double watts) {
  return watts > 0 ? absl::StrCat(Plain(watts), " W by Apple's figures for each machine")
                   : "not known";
}

void AddFigure(const std::string& what, const std::string& published, const std::string& ours,
               v1::CapacityReport* report) {
  v1::PublishedFigure& figure = *report->add_published();
  figure.set_what(what);
  figure.set_published(published);
  figure.set_ours(ours);
}

// The largest of the report's models that fits, by the parameters that its makers count: `models`
// are those asked about, in the same order. -1: none does.
int LargestOf(const v1::CapacityReport& report, const std::vector<AskedModel>& models) {
  int largest = -1;
  const auto size = [&](int i) {
    const v1::CapacityModel& row = report.models(i);
    return std::pair(models[i].At(row.bits()).parameter_count(), row.weights_bytes());
  };
  for (int i = 0; i < report.models_size(); ++i) {
    if (report.models(i).fits() && (largest < 0 || size(i) > size(largest))) largest = i;
  }
  return largest;
}

// What the most users that are stated would each get, when part of them is at work at once.
absl::StatusOr<std::string> WhatUsersGet(const Inputs& inputs, const AskedModel& asked,
                                         uint32_t bits, uint32_t context) {
  Inputs with = inputs;
  with.users = inputs.published.users_high;
  const auto row = TryModel(with, asked, bits, context);
  if (!row.ok()) return row.status();
  const std::string what = absl::StrCat(asked.name(), ", ", bits, " bits");
  if (!row->fits()) {
    return absl::StrCat(with.users, " users' caches do not fit beside ", what);
  }
  const v1::Prediction& predicted = row->prediction();
  return absl::StrCat("of ", with.users, " users ", predicted.users(), " at once: ",
                      OneDecimal(predicted.users_tokens_per_second() / predicted.users()),
                      " tokens/s each with ", what);
}

// What others state beside what we find.
absl::Status AddPublished(const Inputs& inputs, const v1::CapacityQuestion& question,
                          const std::vector<CatalogueEntry>& entries, v1::CapacityReport* report) {
  const PublishedFigures& published = inputs.published;
  report->set_published_by(published.source);
  const uint32_t context = AskedContext(question);
  const auto models = AskedModels(question, entries);
  if (!models.ok()) return models.status();
  const int index = LargestOf(*report, *models);
  const v1::CapacityModel* largest = index < 0 ? nullptr : &report->models(index);
  if (!published.models.empty()) {
    AddFigure("models up to", published.models,
              largest == nullptr ? "none of those above"
                                 : absl::StrCat(largest->model(), ", ", largest->bits(), " bits, ",
                                                FormatBytes(Bytes(largest->weights_bytes()))),
              report);
  }
  if (published.users_high > 0 && largest != nullptr) {
    const auto users = WhatUsersGet(inputs, (*models)[index], largest->bits(), context);
    if (!users.ok()) return users.status();
    AddFigure("users", absl::StrCat(published.users_low, " to ", published.users_high), *users,
              report);
  }
  if (published.peak_watts > 0) {
    AddFigure("power at peak", absl::StrCat(Plain(published.peak_watts), " W"),
              Watts(PeakOf(inputs.cluster)), report);
  }
  if (published.idle_watts > 0) {
    AddFigure("power when idle", absl::StrCat(Plain(published.idle_watts), " W"),
              Watts(IdleOf(inputs.cluster)), report);
  }
  for (const PublishedFigures::Speed& speed : published.speeds) {
    const auto asked = AskedEntry(entries, speed.model);
    if (!asked.ok()) return asked.status();
    const auto row = TryModel(inputs, *asked, asked->ladder.front(), context);
    if (!row.ok()) return row.status();
    AddFigure(absl::StrCat(speed.model, ", one user"),
              absl::StrCat(OneDecimal(speed.tokens_per_second), " tokens/s"),
              row->fits() ? absl::StrCat(OneDecimal(row->prediction().tokens_per_second()),
                                         " tokens/s predicted")
                          : "does not fit",
              report);
  }
  return absl::OkStatus();
}

struct Offer {
  const Machine* machine = nullptr;
  std::string machines;
  uint32_t count = 0;
  uint64_t memory = 0;
  v1::CapacityModel row;

  double speed() const { return row.prediction().tokens_per_second(); }
  // Of each user who is at work at the same time as the others.
  double share() const {
    return row.prediction().users_tokens_per_second() / std::max(1u, row.prediction().users());
  }
  // What a user can count on, alone or among the others.
  double pace() const { return std::min(speed(), share()); }
};

struct Sought {
  std::vector<Offer> offers;
  Offer fastest;                  // of all that hold the model; no machines: none does
  std::string largest;            // machines that were tried
  uint64_t largest_can_give = 0;  // bytes that models may take on them
};

// What joins the machines stands first, for narrow terminals cut the rest off.
std::string JoinedShape(const Machine& machine, const std::string& backend,
                        const std::string& shape) {
  const std::string by = IsRdma(BackendNamed(backend)) ? "RDMA"
                         : machine.rdma_ports > 0      ? "Thunderbolt without RDMA"
                                                       : "gigabit Ethernet";
  return absl::StrCat(by, ", ", shape);
}

absl::Status TryOffer(const v1::CapacityQuestion& question, const AskedModel& asked, Inputs inputs,
                      const MachineConfiguration& one, uint32_t count, Sought* sought) {
  const uint32_t context = AskedContext(question);
  inputs.cluster = ClusterOf(std::vector<MachineConfiguration>(count, one));
  Offer offer;
  offer.machine = one.machine;
  offer.count = count;
  offer.machines = absl::StrCat(count, "x ", one.Name());
  offer.memory = uint64_t{one.memory_gib} * count;
  const uint64_t can_give = count * inputs.cluster.nodes(0).memory_usable_bytes();
  if (can_give > sought->largest_can_give) {
    sought->largest = offer.machines;
    sought->largest_can_give = can_give;
  }
  for (const uint32_t bits : asked.ladder) {
    std::string backend;
    auto row = TryModel(inputs, asked, bits, context, &backend);
    if (!row.ok()) return row.status();
    if (!row->fits() || row->nodes() != count) continue;
    if (count > 1) row->set_shape(JoinedShape(*one.machine, backend, row->shape()));
    offer.row = *std::move(row);
    if (offer.pace() > sought->fastest.pace()) sought->fastest = offer;
    if (offer.pace() < question.tokens_per_second()) continue;
    sought->offers.push_back(std::move(offer));
    break;
  }
  return absl::OkStatus();
}

// Every machine that is sold: one of it, up to four that RDMA joins, two where only Ethernet does.
absl::StatusOr<Sought> OffersFor(const v1::CapacityQuestion& question, const AskedModel& asked,
                                 const Inputs& inputs) {
  constexpr uint32_t kJoinedByEthernet = 2;
  Sought sought;
  for (const Machine& machine : Machines()) {
    if (machine.used_only) continue;
    const uint32_t most = machine.rdma_ports > 0
                              ? std::min<uint32_t>(kMeshRanksMax, machine.rdma_ports + 1)
                              : kJoinedByEthernet;
    for (const uint32_t memory : machine.memory_gib) {
      for (uint32_t count = 1; count <= most; ++count) {
        auto bad = TryOffer(question, asked, inputs, {&machine, memory, true}, count, &sought);
        if (!bad.ok()) return bad;
      }
    }
  }
  // What stands on a desk first, for a server is to stay there; then the less memory, of as much
  // the fewer machines and the faster ones. What they cost no table knows.
  std::stable_sort(sought.offers.begin(), sought.offers.end(), [](const Offer& a, const Offer& b) {
    const auto order = [](const Offer& offer) {
      return std::tuple(IsPortable(*offer.machine), offer.memory, offer.count, -offer.pace());
    };
    return order(a) < order(b);
  });
  return sought;
}

// Of many offers: the fastest, the least of each machine, and then each that gives more speed or
// bits than all with less memory.
std::vector<Offer> Shortlist(const std::vector<Offer>& offers) {
  constexpr size_t kOffersMax = 12;
  if (offers.size() <= kOffersMax) return offers;
  std::set<size_t> shown;
  std::set<const Machine*> kinds;
  size_t fastest = 0;
  for (size_t i = 0; i < offers.size(); ++i) {
    if (offers[i].pace() > offers[fastest].pace()) fastest = i;
    if (kinds.insert(offers[i].machine).second) shown.insert(i);
  }
  shown.insert(fastest);
  for (size_t i = 0; i < offers.size() && shown.size() < kOffersMax; ++i) {
    const bool worse = std::any_of(offers.begin(), offers.begin() + i, [&](const Offer& less) {
      return less.row.bits() >= offers[i].row.bits() && less.pace() >= offers[i].pace();
    });
    if (!worse) shown.insert(i);
  }
  std::vector<Offer> list;
  for (const size_t i : shown) list.push_back(offers[i]);
  return list;
}

// What the machines lack when there is no offer.
absl::Status NoOffer(const v1::CapacityQuestion& question, const AskedModel& asked,
                     const Inputs& inputs, const Sought& sought) {
  const uint32_t at_work = UsersAtWork(inputs);
  const std::string users =
      at_work == 1 ? "one user at work" : absl::StrCat("each of ", at_work, " users at work");
  if (!sought.fastest.machines.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no machines that are sold, up to four alike, give ", users, " ",
                     Plain(question.tokens_per_second()), " tokens/s with ", asked.name(),
                     ": the fastest, ", sought.fastest.machines, " with ",
                     sought.fastest.row.bits(), " bits, give ", OneDecimal(sought.fastest.pace())));
  }
  const uint32_t bits = asked.ladder.back();
  return absl::ResourceExhaustedError(
      absl::StrCat("no machines that are sold, up to four alike, hold ", asked.name(), " with ",
                   bits, " bits (", FormatBytes(Bytes(ModelBytes(asked.At(bits)))),
                   ") and the cache of ", users, ": the largest, ", sought.largest,
                   ", can give models ", FormatBytes(Bytes(sought.largest_can_give))));
}

absl::StatusOr<v1::CapacityReport> Recommend(const v1::CapacityQuestion& question,
                                             const std::vector<CatalogueEntry>& entries) {
  if (question.models_size() + question.described_size() != 1) {
    return absl::InvalidArgumentError("name the one model that machines are sought for");
  }
  const auto models = AskedModels(question, entries);
  if (!models.ok()) return models.status();
  const AskedModel& asked = models->front();
  if (auto bad = Check(question); !bad.ok()) return bad;
  Inputs inputs;
  ReadRates(question, 1, &inputs);
  const auto sought = OffersFor(question, asked, inputs);
  if (!sought.ok()) return sought.status();
  if (sought->offers.empty()) return NoOffer(question, asked, inputs, *sought);
  const std::vector<Offer> list = Shortlist(sought->offers);
  v1::CapacityReport report;
  report.set_recommends(true);
  report.set_currency(inputs.currency);
  report.set_title(absl::StrCat("machines for ", asked.name(), ", ", inputs.users,
                                inputs.users == 1 ? " user, " : " users, ", UsersAtWork(inputs),
                                " of them at work at the same time"));
  WarnOfLimits(inputs, question, *models, &report);
  for (const Offer& offer : list) {
    report.add_machines(offer.machines);
    *report.add_models() = offer.row;
  }
  if (const std::string why = WhyNotServed(asked.At(asked.ladder.front())); !why.empty()) {
    report.add_warnings(why);
  }
  if (list.size() < sought->offers.size()) {
    report.add_warnings(absl::StrCat(
        sought->offers.size() - list.size(), " further offers are left out; these are the least ",
        "memory of each machine, the fastest, and what is worth more memory. '--buy' with ",
        "'--models' predicts any other, also machines that are sold no more"));
  }
  report.add_warnings(
      "machines without a battery first, of these the least memory: no prices are known here, and "
      "laptops of as much memory often cost more; RDMA needs a Thunderbolt 5 cable between each "
      "two machines "
      "('clusterctl topology advise' says which socket)");
  return report;
}

}  // namespace

absl::StatusOr<v1::CapacityReport> MakeCapacityReport(const v1::CapacityQuestion& question,
                                                      const std::vector<CatalogueEntry>& entries) {
  if (question.recommend()) return Recommend(question, entries);
  auto inputs = ReadInputs(question);
  if (!inputs.ok()) return inputs.status();
  v1::CapacityReport report;
  report.set_title(inputs->title);
  Describe(*inputs, &report);
  WarnOfUnknownPower(*inputs, &report);
  WarnOfOtherPower(*inputs, &report);
  AddCosts(*inputs, question.cloud_price(), &report);
  AddLinesOfPublishedUsers(*inputs, &report);
  if (auto bad = AddModels(*inputs, question, entries, &report); !bad.ok()) return bad;
  if (auto bad = AddPublished(*inputs, question, entries, &report); !bad.ok()) return bad;
  return report;
}

}  // namespace macrame::planner
