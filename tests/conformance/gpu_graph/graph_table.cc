#include "tests/conformance/gpu_graph/graph_table.h"

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <sstream>

namespace macrame::gpu_graph {

using nlohmann::json;

namespace {

struct Column {
  const char* name;
  const char* words;  // in a sentence, behind a number
  const char* head;
  bool is_limited;  // by what was measured; the others only by goals
};

constexpr Column kColumns[] = {
    {"operations", "operations that are no views", "ops", true},
    {"views", "views", "views", false},
    {"scatters", "scatters", "scatters", true},
    {"host_arrays", "arrays made on the host", "host arrays", true},
    {"host_bytes", "bytes of arrays made on the host", "host bytes", true},
    {"copied_bytes", "bytes of keys and values copied", "KV copied", true},
    {"early_evaluations", "evaluations while the step was built", "early", true},
    {"unsorted", "products of 64 choices and more whose experts are not sorted", "unsorted", true},
    {"build_ms", "ms to build the graph", "build ms", false},
};

// What may be lowered without a word: a tenth.
constexpr double kGain = 0.9;

std::string Number(double value) {
  std::ostringstream out;
  const bool is_whole = value == static_cast<double>(static_cast<int64_t>(value));
  out << std::fixed << std::setprecision(is_whole ? 0 : 2) << value;
  return out.str();
}

double ValueOf(const Row& row, const std::string& column) {
  const auto found = row.find(column);
  return found == row.end() ? 0 : found->second;
}

}  // namespace

Limits::Limits(const std::string& path) : path_(path) {
  std::ifstream in(path);
  file_ = in.good() ? json::parse(in) : json{{"goals", json::object()}, {"limits", json::object()}};
}

std::vector<std::string> Limits::Faults(const Table& table, const Table& mlx_lm) const {
  std::vector<std::string> faults;
  for (const auto& [name, row] : table) {
    const json limits = file_["limits"].value(name, json::object());
    const json goals = file_["goals"].value(name, json::object());
    if (limits.empty()) faults.push_back(name + ": no limits; measure them with --update");
    for (const Column& column : kColumns) {
      const double value = ValueOf(row, column.name);
      for (const auto& [kind, bounds] : {std::pair{"goal", goals}, {"limit", limits}}) {
        const json bound = bounds.value(column.name, json());
        if (bound.is_null() || value <= bound.get<double>()) continue;
        faults.push_back(name + ": " + Number(value) + " " + column.words + "; the " + kind +
                         " is " + Number(bound));
        break;
      }
    }
    const json ratio = goals.value("mlx_lm_ratio", json());
    const auto peer = mlx_lm.find(name);
    if (ratio.is_null() || peer == mlx_lm.end()) continue;
    const double most = ratio.get<double>() * ValueOf(peer->second, "operations");
    if (ValueOf(row, "operations") <= most) continue;
    faults.push_back(name + ": " + Number(ValueOf(row, "operations")) +
                     " operations that are no views; " + Number(ratio) + " of mlx-lm's are " +
                     Number(most));
  }
  return faults;
}

std::vector<std::string> Limits::Gains(const Table& table) const {
  std::vector<std::string> gains;
  for (const auto& [name, row] : table) {
    const json limits = file_["limits"].value(name, json::object());
    const double limit = limits.value("operations", 0.0), value = ValueOf(row, "operations");
    if (value >= kGain * limit) continue;
    gains.push_back(name + ": " + Number(value) + " operations, and the limit is " + Number(limit) +
                    "; lower it with --update");
  }
  return gains;
}

void Limits::Update(const Table& table) const {
  json file = file_;
  for (const auto& [name, row] : table) {
    json& limits = file["limits"][name] = json::object();
    for (const Column& column : kColumns) {
      const double value = ValueOf(row, column.name);
      if (column.is_limited) limits[column.name] = static_cast<int64_t>(value);
    }
  }
  // A row a line.
  std::ofstream out(path_);
  out << "{\n";
  for (const char* part : {"goals", "limits"}) {
    out << "  \"" << part << "\": {";
    const char* between = "\n";
    for (const auto& [name, row] : file[part].items()) {
      out << between << "    " << json(name).dump() << ": " << row.dump();
      between = ",\n";
    }
    out << (std::string(part) == "goals" ? "\n  },\n" : "\n  }\n");
  }
  out << "}\n";
}

Table ReadTable(const std::string& path) {
  std::ifstream in(path);
  if (!in.good()) return {};
  return json::parse(in).get<Table>();
}

std::string Printed(const Table& table, const Table& mlx_lm,
                    const std::vector<std::string>& models) {
  std::ostringstream out;
  out << std::left << std::setw(34) << "step" << std::right << std::setw(9) << "mlx-lm"
      << std::setw(7) << "ratio";
  for (const Column& column : kColumns) out << std::setw(13) << column.head;
  out << "\n";
  for (const auto& [name, row] : table) {
    const auto begins = [&, &row_name = name](const auto& model) {
      return row_name.starts_with(model + " ");
    };
    if (std::none_of(models.begin(), models.end(), begins)) continue;
    const auto peer = mlx_lm.find(name);
    const double theirs = peer == mlx_lm.end() ? 0 : ValueOf(peer->second, "operations");
    out << std::left << std::setw(34) << name << std::right << std::setw(9)
        << (theirs > 0 ? Number(theirs) : "") << std::setw(7) << std::fixed << std::setprecision(2);
    if (theirs > 0) {
      out << ValueOf(row, "operations") / theirs;
    } else {
      out << "";
    }
    for (const Column& column : kColumns) {
      out << std::setw(13) << Number(ValueOf(row, column.name));
    }
    out << "\n";
  }
  return out.str();
}

}  // namespace macrame::gpu_graph
