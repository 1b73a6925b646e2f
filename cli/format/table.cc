#include "cli/format/table.h"

#include <algorithm>

namespace macrame::cli {
namespace {

constexpr int kGap = 2;

std::string Toned(const std::string& text, Tone tone, const Style& style) {
  switch (tone) {
    case Tone::kGood:
      return style.Good(text);
    case Tone::kWarn:
      return style.Warn(text);
    case Tone::kBad:
      return style.Bad(text);
    case Tone::kDim:
      return style.Dim(text);
    case Tone::kPlain:
      return text;
  }
  return text;
}

int TotalWidth(const std::vector<int>& widths) {
  int total = 0;
  for (const int width : widths) total += width > 0 ? width + kGap : 0;
  return std::max(total - kGap, 0);
}

// Width 0: the column vanishes.
std::vector<int> FitWidths(const std::vector<Column>& columns, std::vector<int> widths, int width) {
  for (int keep = 0; keep < 10 && TotalWidth(widths) > width; ++keep) {
    for (size_t i = columns.size(); i-- > 0;) {
      const int excess = TotalWidth(widths) - width;
      if (columns[i].keep != keep || excess <= 0) continue;
      widths[i] =
          keep == 0 ? 0 : std::max(std::min(columns[i].width_min, widths[i]), widths[i] - excess);
    }
  }
  return widths;
}

}  // namespace

std::string RenderTable(const std::vector<Column>& columns,
                        const std::vector<std::vector<Cell>>& rows, int width, const Style& style) {
  std::vector<std::vector<Cell>> cells = rows;
  std::vector<int> widths;
  for (const Column& column : columns) widths.push_back(DisplayWidth(column.title));
  for (auto& row : cells) {
    for (size_t i = 0; i < row.size() && i < columns.size(); ++i) {
      row[i].text = Printable(row[i].text);
      widths[i] = std::max(widths[i], DisplayWidth(row[i].text));
    }
  }
  widths = FitWidths(columns, std::move(widths), width);

  const auto draw = [&](size_t i, const std::string& text, const std::string& painted) {
    const std::string padding(std::max(widths[i] - DisplayWidth(text), 0), ' ');
    return columns[i].right ? padding + painted : painted + padding;
  };
  std::string out;
  const auto draw_row = [&](const auto& text_of, const auto& paint) {
    std::string line;
    for (size_t i = 0; i < columns.size(); ++i) {
      if (widths[i] == 0) continue;
      const std::string text = CutToWidth(text_of(i), widths[i]);
      if (!line.empty()) line += std::string(kGap, ' ');
      line += draw(i, text, paint(i, text));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  draw_row([&](size_t i) { return columns[i].title; },
           [&](size_t, const std::string& text) { return style.Bold(text); });
  for (const auto& row : cells) {
    draw_row([&](size_t i) { return i < row.size() ? row[i].text : std::string(); },
             [&](size_t i, const std::string& text) {
               return i < row.size() ? Toned(text, row[i].tone, style) : text;
             });
  }
  return out;
}

}  // namespace macrame::cli
