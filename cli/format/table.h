#pragma once

// Tables for people: columns as wide as needed, cut where the window is narrow. Pure.

#include <string>
#include <vector>

#include "cli/format/text.h"

namespace macrame::cli {

enum class Tone { kPlain, kGood, kWarn, kBad, kDim };

struct Cell {
  Cell(std::string the_text = "", Tone the_tone = Tone::kPlain)  // NOLINT: rows are lists of texts
      : text(std::move(the_text)), tone(the_tone) {}
  Cell(const char* the_text) : text(the_text) {}  // NOLINT
  std::string text;                               // made printable when drawn
  Tone tone = Tone::kPlain;
};

struct Column {
  std::string title;
  bool right = false;  // figures
  // When the table is too wide, columns give way in the order of `keep`, lowest first: those of 0
  // vanish, the others are cut to `width_min` columns.
  int keep = 9;
  int width_min = 8;
};

// Lines with a closing line break each, none wider than `width` columns where that can be had.
std::string RenderTable(const std::vector<Column>& columns,
                        const std::vector<std::vector<Cell>>& rows, int width, const Style& style);

}  // namespace macrame::cli
