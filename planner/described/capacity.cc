#include "planner/described/capacity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/advice.h"
#include "planner/described/cluster_file.h"
#include "planner/planner.h"
#include "proto/bytes.h"

namespace macrame::planner {
namespace {

struct Tier {
  std::string_view name;
  std::string_view machines;  // as ParsePurchase reads it
  double price;               // pounds
  uint32_t users_low, users_high;
  double peak_watts, idle_watts;  // of all machines; idle 0: not given
  std::string_view claim;
};

constexpr std::array kTiers = {
    Tier{"starter", "2x mac-mini-m4-pro-64gb", 4000, 10, 20, 200, 0,
         "models up to 70B, 10 to 20 users, under 200 W at peak"},
    Tier{"professional", "4x mac-studio-m3-ultra-192gb", 30000, 50, 100, 600, 0,
         "models up to 240B, 50 to 100 users, about 600 W at peak"},
    Tier{"enterprise", "4x mac-studio-m3-ultra-512gb", 50000, 100, 200, 600, 66,
         "models of 671B or 1T with experts, 100 to 200 users, about 600 W at peak, 66 W idle"},
};
// Whose sum is checked against in the open: 50 users on the enterprise tier.
constexpr uint32_t kUsersDefault = 50;
constexpr uint32_t kMonthsDefault = 36;
constexpr uint32_t kUsersAtWorkMax = 4096;
constexpr double kTariffDefault = 0.25;
constexpr double kDutyDefault = 0.20;
constexpr uint32_t kContextDefault = 4096;
constexpr double kTokensPerMillion = 1e6;
constexpr double kJoulesPerKilowattHour = 3.6e6;
constexpr double kGiB = 1ULL << 30;

// Some of each size that people ask about.
constexpr std::array<std::string_view, 7> kUsualModels = {
    "Llama-3.1-8B-Instruct", "Qwen3-30B-A3B", "Llama-3.3-70B-Instruct", "gpt-oss-120b",
    "Qwen3-235B-A22B",       "DeepSeek-V3.1", "Kimi-K2-Thinking"};
constexpr std::array<uint32_t, 3> kBitsLadder = {8, 6, 4};

std::string Text(std::string_view view) { return std::string(view); }

struct Inputs {
  std::vector<MachineConfiguration> machines;
  const Tier* tier = nullptr;
  v1::PlanRequest cluster;
  std::string currency;
  uint32_t users = 0, months = 0;
  double price = 0, tariff = 0, duty = 0, peak_watts = 0, idle_watts = 0;
};

std::string Money(const Inputs& inputs, double amount) {
  return absl::StrFormat("%s%.2f", inputs.currency, amount);
}

std::string RoundMoney(const Inputs& inputs, double amount) {
  return amount == std::floor(amount) ? absl::StrFormat("%s%.0f", inputs.currency, amount)
                                      : Money(inputs, amount);
}

std::string Plain(double value) {
  return value == std::floor(value) ? absl::StrFormat("%.0f", value)
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
        question.idle_watts(), question.cloud_price()}) {
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

absl::StatusOr<const Tier*> TierNamed(const std::string& name) {
  if (name.empty()) return nullptr;
  std::vector<std::string> names;
  for (const Tier& tier : kTiers) {
    if (name == tier.name) return &tier;
    names.push_back(Text(tier.name));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no tier is called '", name, "'; there are ", absl::StrJoin(names, ", ")));
}

absl::Status ReadMachines(const v1::CapacityQuestion& question, Inputs* inputs) {
  if (!question.cluster_yaml().empty()) {
    auto cluster = ReadClusterFile(question.cluster_yaml());
    if (!cluster.ok()) return cluster.status();
    inputs->cluster = *std::move(cluster);
    return absl::OkStatus();
  }
  const std::string text = !question.buy().empty()   ? question.buy()
                           : inputs->tier != nullptr ? Text(inputs->tier->machines)
                                                     : "";
  if (text.empty()) {
    return absl::InvalidArgumentError("name machines to buy, a tier, or a cluster's description");
  }
  auto machines = ParsePurchase(text);
  if (!machines.ok()) return machines.status();
  for (const MachineConfiguration& machine : *machines) {
    if (machine.is_sold || inputs->tier != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(machine.Name(), " is not sold: ", Text(machine.machine->name), " comes with ",
                     absl::StrJoin(machine.machine->memory_gib, ", "), " GB"));
  }
  inputs->machines = *std::move(machines);
  inputs->cluster = ClusterOf(inputs->machines);
  return absl::OkStatus();
}

absl::StatusOr<Inputs> ReadInputs(const v1::CapacityQuestion& question) {
  if (auto bad = Check(question); !bad.ok()) return bad;
  const auto tier = TierNamed(question.tier());
  if (!tier.ok()) return tier.status();
  Inputs inputs;
  inputs.tier = *tier;
  if (auto bad = ReadMachines(question, &inputs); !bad.ok()) return bad;
  const auto either = [](double said, double otherwise) { return said > 0 ? said : otherwise; };
  inputs.currency = question.currency().empty() ? "£" : question.currency();
  inputs.users = question.users() > 0 ? question.users() : kUsersDefault;
  inputs.months = question.months() > 0 ? question.months() : kMonthsDefault;
  inputs.tariff = either(question.tariff(), kTariffDefault);
  inputs.duty = either(question.duty(), kDutyDefault);
  inputs.price = either(question.price(), inputs.tier == nullptr ? 0 : inputs.tier->price);
  double peak = 0, idle = 0;
  for (const v1::PlannerNode& node : inputs.cluster.nodes()) {
    peak += node.power_peak_watts();
    idle += node.power_idle_watts();
  }
  const bool tier_power = inputs.tier != nullptr && question.buy().empty();
  inputs.peak_watts = either(question.peak_watts(), tier_power ? inputs.tier->peak_watts : peak);
  inputs.idle_watts = either(question.idle_watts(), tier_power ? inputs.tier->idle_watts : idle);
  return inputs;
}

// Energy and hardware, a user and month.
void AddCosts(const Inputs& inputs, double cloud_price, v1::CapacityReport* report) {
  const std::string users = absl::StrCat(inputs.users);
  double energy = 0, idle = 0;
  if (inputs.peak_watts > 0) {
    const double hour = inputs.peak_watts / 1000 * inputs.tariff;
    AddLine("energy of an hour at peak",
            absl::StrCat(Plain(inputs.peak_watts), " W / 1000 × ", Money(inputs, inputs.tariff)),
            Money(inputs, hour), report);
    energy = hour * kHoursPerMonth * inputs.duty;
    AddLine("energy of a month, all machines",
            absl::StrCat(Money(inputs, hour), " × 24 h × 30 d × ", Plain(100 * inputs.duty), " %"),
            Money(inputs, energy), report);
    AddLine("energy, a user and month", absl::StrCat(Money(inputs, energy), " / ", users),
            Money(inputs, energy / inputs.users), report);
  }
  const double hardware = inputs.price / inputs.months / inputs.users;
  if (inputs.price > 0) {
    AddLine("hardware, a user and month",
            absl::StrCat(RoundMoney(inputs, inputs.price), " / ", inputs.months, " / ", users),
            Money(inputs, hardware), report);
    AddLine("together, a user and month",
            absl::StrCat(Money(inputs, energy / inputs.users), " + ", Money(inputs, hardware)),
            Money(inputs, energy / inputs.users + hardware), report);
  }
  if (inputs.idle_watts > 0) {
    idle = inputs.idle_watts / 1000 * kHoursPerMonth * (1 - inputs.duty) * inputs.tariff;
    AddLine("energy of the idle hours of a month",
            absl::StrCat(Plain(inputs.idle_watts), " W / 1000 × 24 h × 30 d × ",
                         Plain(100 * (1 - inputs.duty)), " % × ", Money(inputs, inputs.tariff)),
            Money(inputs, idle), report);
    AddLine("energy with idle hours, a user and month",
            absl::StrCat("(", Money(inputs, energy), " + ", Money(inputs, idle), ") / ", users),
            Money(inputs, (energy + idle) / inputs.users), report);
    if (inputs.price > 0) {
      AddLine("together with idle hours, a user and month",
              absl::StrCat(Money(inputs, (energy + idle) / inputs.users), " + ",
                           Money(inputs, hardware)),
              Money(inputs, (energy + idle) / inputs.users + hardware), report);
    }
  }
  if (cloud_price > 0 && inputs.price > 0) {
    AddLine("months until it costs less than the cloud, hardware alone",
            absl::StrCat(RoundMoney(inputs, inputs.price), " / ", RoundMoney(inputs, cloud_price)),
            absl::StrFormat("%.1f", inputs.price / cloud_price), report);
    if (cloud_price > energy) {
      AddLine("the same with energy",
              absl::StrCat(RoundMoney(inputs, inputs.price), " / (",
                           RoundMoney(inputs, cloud_price), " - ", Money(inputs, energy), ")"),
              absl::StrFormat("%.1f", inputs.price / (cloud_price - energy)), report);
    }
  }
}

void AddTierLines(const Inputs& inputs, v1::CapacityReport* report) {
  const Tier& tier = *inputs.tier;
  const double month = inputs.price / inputs.months;
  AddLine(absl::StrCat("hardware, a user and month, with ", tier.users_low, " to ", tier.users_high,
                       " users"),
          absl::StrCat(RoundMoney(inputs, inputs.price), " / ", inputs.months, " / ",
                       tier.users_low, " … ", tier.users_high),
          absl::StrCat(Money(inputs, month / tier.users_low), " … ",
                       Money(inputs, month / tier.users_high)),
          report);
}

// A model that is asked about: a card, at any number of bits, or files, at their own.
struct AskedModel {
  const ModelCard* card = nullptr;
  v1::ModelDescription files;    // without a card
  std::vector<uint32_t> ladder;  // of bits that are tried, the most first

  const std::string& name() const { return card == nullptr ? files.name() : card->name; }
  v1::ModelDescription At(uint32_t bits) const {
    return card == nullptr ? files : DescribeCard(*card, bits);
  }
};

absl::StatusOr<AskedModel> AskedCard(const std::vector<ModelCard>& cards, const std::string& name) {
  const auto card = FindModelCard(cards, name);
  if (!card.ok()) return card.status();
  AskedModel asked;
  asked.card = *card;
  asked.ladder.assign(kBitsLadder.begin(), kBitsLadder.end());
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
                                                    const std::vector<ModelCard>& cards) {
  std::vector<std::string> names(question.models().begin(), question.models().end());
  if (names.empty() && question.described().empty()) {
    names.assign(kUsualModels.begin(), kUsualModels.end());
  }
  std::vector<AskedModel> asked;
  for (const std::string& name : names) {
    auto card = AskedCard(cards, name);
    if (!card.ok()) return card.status();
    asked.push_back(*std::move(card));
  }
  for (const v1::ModelDescription& files : question.described()) {
    asked.push_back(AskedFiles(files));
  }
  return asked;
}

absl::StatusOr<v1::CapacityModel> TryModel(const Inputs& inputs, const AskedModel& asked,
                                           uint32_t bits, uint32_t context) {
  v1::PlanRequest request = inputs.cluster;
  *request.mutable_model() = asked.At(bits);
  const uint32_t longest = request.model().context_length_max();
  request.mutable_wishes()->set_context_length(longest > 0 ? std::min(context, longest) : context);
  // Those at work at the same time need their caches.
  const uint32_t at_work = std::clamp<uint32_t>(
      static_cast<uint32_t>(std::lround(inputs.users * inputs.duty)), 1, kUsersAtWorkMax);
  request.mutable_wishes()->set_users(at_work);
  request.mutable_wishes()->set_concurrent_sequences(at_work);
  v1::CapacityModel row;
  row.set_model(asked.name());
  row.set_bits(bits);
  row.set_weights_bytes(ModelBytes(request.model()));
  const v1::PlanResult result = PlanModel(request);
  row.set_fits(result.has_plan());
  if (!result.has_plan()) {
    if (result.failure().code() == "MODEL_CONFIG_INVALID") {
      return absl::InvalidArgumentError(result.failure().message());
    }
    row.set_why_not(result.failure().message());
    return row;
  }
  const v1::Plan& plan = result.plan();
  row.set_nodes(plan.world_size());
  row.set_shape(ShapeName({plan.tp(), plan.pp()}));
  *row.mutable_prediction() = plan.prediction();
  const double watts = inputs.peak_watts * plan.world_size() / inputs.cluster.nodes_size();
  if (watts > 0) {
    row.set_joules_per_token(watts / plan.prediction().tokens_per_second());
    row.set_cost_per_million_tokens(row.joules_per_token() * kTokensPerMillion /
                                    kJoulesPerKilowattHour * inputs.tariff);
  }
  return row;
}

// Of each model the most bits that fit; the row of the fewest says why none does.
absl::Status AddModels(const Inputs& inputs, const v1::CapacityQuestion& question,
                       const std::vector<ModelCard>& cards, v1::CapacityReport* report) {
  const uint32_t context =
      question.context_length() > 0 ? question.context_length() : kContextDefault;
  const auto models = AskedModels(question, cards);
  if (!models.ok()) return models.status();
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
                         Plain(static_cast<double>(memory) / kGiB), " GB"),
            Money(inputs, inputs.price / (static_cast<double>(memory) / kGiB)), report);
  }
  for (const MachineConfiguration& machine : inputs.machines) {
    if (machine.is_sold) continue;
    report->add_warnings(absl::StrCat(machine.Name(), " is not sold: ", Text(machine.machine->name),
                                      " comes with ",
                                      absl::StrJoin(machine.machine->memory_gib, ", "), " GB"));
    break;
  }
  if (inputs.peak_watts == 0) report->add_warnings("power is not known; say --peak-watts");
  if (inputs.tier == nullptr) return;
  report->add_claims(absl::StrCat(Text(inputs.tier->name), ": ", Text(inputs.tier->claim)));
  report->add_claims(
      "the published sum gives £21.60 of energy and £49.38 in all for each user; it forgot to "
      "divide "
      "the energy by the users");
  report->add_claims(
      "power of four Mac Studios is given as about 600 W, under 1,000 W, and under 250 W each; "
      "what "
      "you measure wins");
}

struct Offer {
  std::string machines;
  uint64_t memory = 0;
  v1::CapacityModel row;
};

// Every machine with Thunderbolt 5 that is sold, one to four of it.
absl::StatusOr<std::vector<Offer>> OffersFor(const v1::CapacityQuestion& question,
                                             const AskedModel& asked, const Inputs& inputs) {
  const uint32_t context =
      question.context_length() > 0 ? question.context_length() : kContextDefault;
  std::vector<Offer> offers;
  for (const Machine& machine : Machines()) {
    if (machine.rdma_ports == 0) continue;
    for (const uint32_t memory : machine.memory_gib) {
      for (const uint32_t count : {1u, 2u, 3u, 4u}) {
        if (count > 1 && machine.rdma_ports < count - 1) continue;
        const MachineConfiguration one{&machine, memory, true};
        Inputs with = inputs;
        with.machines.assign(count, one);
        with.cluster = ClusterOf(with.machines);
        with.peak_watts = count * machine.peak_watts;
        for (const uint32_t bits : asked.ladder) {
          auto row = TryModel(with, asked, bits, context);
          if (!row.ok()) return row.status();
          const bool fast = row->prediction().tokens_per_second() >= question.tokens_per_second();
          if (!row->fits() || !fast || row->nodes() != count) continue;
          // Each user who is at work at the same time gets his part.
          const double share =
              row->prediction().users_tokens_per_second() / row->prediction().users();
          if (share < question.tokens_per_second()) continue;
          offers.push_back(
              {absl::StrCat(count, "x ", one.Name()), uint64_t{memory} * count, *std::move(row)});
          break;
        }
      }
    }
  }
  std::stable_sort(offers.begin(), offers.end(),
                   [](const Offer& a, const Offer& b) { return a.memory < b.memory; });
  return offers;
}

absl::StatusOr<v1::CapacityReport> Recommend(const v1::CapacityQuestion& question,
                                             const std::vector<ModelCard>& cards) {
  constexpr size_t kOffersMax = 8;
  if (question.models_size() + question.described_size() != 1) {
    return absl::InvalidArgumentError("name the one model that machines are sought for");
  }
  const auto models = AskedModels(question, cards);
  if (!models.ok()) return models.status();
  const AskedModel& asked = models->front();
  if (auto bad = Check(question); !bad.ok()) return bad;
  Inputs inputs;
  inputs.currency = question.currency().empty() ? "£" : question.currency();
  inputs.users = question.users() > 0 ? question.users() : 1;
  inputs.duty = question.duty() > 0 ? question.duty() : kDutyDefault;
  inputs.tariff = question.tariff() > 0 ? question.tariff() : kTariffDefault;
  const auto offers = OffersFor(question, asked, inputs);
  if (!offers.ok()) return offers.status();
  v1::CapacityReport report;
  report.set_currency(inputs.currency);
  report.set_title(absl::StrCat("machines for ", asked.name(), ", ", inputs.users, " users, ",
                                std::max(1L, std::lround(inputs.users * inputs.duty)),
                                " of them at work at the same time"));
  for (size_t i = 0; i < std::min(kOffersMax, offers->size()); ++i) {
    report.add_machines((*offers)[i].machines);
    *report.add_models() = (*offers)[i].row;
  }
  if (offers->empty()) {
    report.add_warnings("no machines that are sold, up to four alike, hold it and are fast enough");
  }
  report.add_warnings(
      "least memory first; RDMA needs a Thunderbolt 5 cable between each two machines "
      "('clusterctl topology advise' says which socket)");
  return report;
}

}  // namespace

absl::StatusOr<v1::CapacityReport> MakeCapacityReport(const v1::CapacityQuestion& question,
                                                      const std::vector<ModelCard>& cards) {
  if (question.recommend()) return Recommend(question, cards);
  auto inputs = ReadInputs(question);
  if (!inputs.ok()) return inputs.status();
  v1::CapacityReport report;
  report.set_title(inputs->tier == nullptr ? absl::StrCat(inputs->cluster.nodes_size(), " machines")
                                           : absl::StrCat("tier ", Text(inputs->tier->name), ": ",
                                                          Text(inputs->tier->machines)));
  Describe(*inputs, &report);
  AddCosts(*inputs, question.cloud_price(), &report);
  if (inputs->tier != nullptr && inputs->price > 0) AddTierLines(*inputs, &report);
  if (auto bad = AddModels(*inputs, question, cards, &report); !bad.ok()) return bad;
  return report;
}

}  // namespace macrame::planner
