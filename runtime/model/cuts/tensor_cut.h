#pragma once

// Where a tensor split cuts a model. Pure.
//
// Each kind of work is cut by its own smallest unit, and a rank gets as near to its slices' part of
// the units as whole ones allow: key-value heads with the query heads that share them (so many at
// once that their part of o_proj's columns is whole quantisation groups), groups of down_proj's
// columns with the rows of gate_proj and up_proj that feed them, rows of the vocabulary. With fewer
// units than ranks some ranks get none, and add zeros to the sums.
//
// Experts are cut by the width of each or, where slices say so, dealt out whole: as a plan finds it
// faster. Whole ones are read where they lie in the files; a rank adds zeros for a token that chose
// none of its own.

#include "runtime/model/config/model_config.h"

namespace macrame::runtime::engine {

// [begin, end) of `count` equal slices of the whole model.
struct SliceRange {
  int begin = 0;
  int end = 1;
  int count = 1;
  bool whole_experts = false;  // of experts, whole ones
  bool operator==(const SliceRange&) const = default;
};

// A rank's place: layers [layer_begin, layer_end), slices [slice_begin, slice_end) of slice_count.
struct ShardPlace {
  int layer_begin = 0;
  int layer_end = 0;
  int tp = 1;
  int tp_rank = 0;
  int slice_begin = 0;
  int slice_end = 1;
  int slice_count = 1;
  SliceRange slices() const { return {slice_begin, slice_end, slice_count, whole_experts}; }
  bool embeds = true;    // turns tokens into hidden states: every rank of the first stage
  bool has_head = true;  // final norm and the logits of its rows: every rank of the last stage
  bool whole_experts = false;  // its slices' part of a layer's experts are whole ones
};

struct Range {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// The rows or columns of heads that have `by` each.
inline Range Times(const Range& heads, int by) { return {heads.begin * by, heads.end * by}; }

// The part of [0, whole) that falls to these slices when cuts are at multiples of `unit` only: the
// nearest ones. Parts of slices side by side lie side by side; those of all slices cover the whole.
Range CutInUnits(int whole, int unit, const SliceRange& slices);

// Of the model's key-value heads. The same in every layer whose heads are alike, since the KV cache
// is.
Range KvHeadsOf(const ModelConfig& config, const SliceRange& slices);
// Where some layers' heads differ from the others', of each kind for itself.
Range KvHeadsOf(const ModelConfig& config, int layer, const SliceRange& slices);
// Of the key heads of layers with a state, each with its value heads. The same in every layer too.
Range StateHeadsOf(const ModelConfig& config, const SliceRange& slices);
// Of one layer's intermediate_size.
Range InnerOf(const ModelConfig& config, int layer, const SliceRange& slices);
// Of a layer's experts, those of which a rank has a part: all, or its own whole ones.
Range ExpertsOf(const ModelConfig& config, const SliceRange& slices);
// Of the width of each of these, and of the shared expert's.
Range ExpertInnerOf(const ModelConfig& config, int layer, const SliceRange& slices);
Range SharedInnerOf(const ModelConfig& config, int layer, const SliceRange& slices);
// Of the rows of the embedding and of the head.
Range VocabularyOf(const ModelConfig& config, const SliceRange& slices);

}  // namespace macrame::runtime::engine
