#pragma once

// How rankd cuts a model for a tensor split, as far as a plan has to know
// (runtime/model/cuts/tensor_cut.h): heads, the feed-forward's width and the vocabulary each by
// units of their own, as near to a rank's slices as whole units allow; experts by their width or as
// whole ones. Pure.

#include <cstdint>

#include "macrame/v1/model.pb.h"

namespace macrame::planner {

// A rank's part of each layer: `width` of `of` equal slices.
struct Slice {
  uint32_t width = 1;
  uint32_t of = 1;
  bool whole_experts = false;  // its part of experts is whole ones, not a part of their width
  bool operator==(const Slice&) const = default;
};

// Equal slices that each layer can be cut into: whole attention heads, key-value heads and
// quantisation groups, all at the same places; the most there can be up to kSliceCountMax. 1: none
// but the whole.
uint32_t SliceCount(const v1::ModelDescription& model);
inline constexpr uint32_t kSliceCountMax = 64;

// The slices that a stage of `tp` ranks is cut into. Engines that can't give ranks slices of
// unequal width need such as are all at the same places: 0 when these can't be divided evenly. The
// others take finer ones then; 0: more ranks than kSliceCountMax.
uint32_t SlicesFor(const v1::ModelDescription& model, uint32_t tp, bool uneven);
inline constexpr uint32_t kFineSlices = 12;  // at least about so many, a multiple of the ranks

// The most that a rank with this slice may get, wherever its slices lie.
struct Cut {
  uint64_t kv_heads = 0;
  uint64_t inner = 0;  // of intermediate_size
  uint64_t experts = 0;
  bool even = true;  // just the slice's part of both
};
Cut CutOf(const v1::ModelDescription& model, Slice slice);

// Which part of what a tensor split divides of a layer is attention's; the rest is the
// feed-forward's. 0 to 1.
double AttentionPart(const v1::ModelDescription& model, uint32_t layer);

// What a cut has of the feed-forward's width, or of the experts; the slice's part where an entry
// does not know that.
double InnerPart(const v1::ModelDescription& model, const Cut& cut, Slice slice);
// Of the bytes of a layer that a tensor split divides, the share of a rank with this slice.
double ShareOf(const v1::ModelDescription& model, uint32_t layer, Slice slice);

// Of a model's experts, the whole ones of a rank whose slices begin with `first`: as rankd cuts.
uint32_t ExpertsHeld(const v1::ModelDescription& model, uint32_t first, Slice slice);

}  // namespace macrame::planner
