#pragma once

// Keys and values that layers share, and what a position takes along from one stage of a pipeline
// to the next. Pure.
//
// Most models hand on the hidden state alone. Some have several residual streams instead
// (ModelConfig::streams). Some layers read more than that: an input of their own, which is made
// where tokens are embedded, keys and values of an earlier layer (ModelConfig::kv_sources), or
// compressed entries that an earlier layer made and chose (ModelConfig::compress). Stages may be
// cut anywhere: what layers behind a cut read of before it is handed on with the hidden state, and
// a stage keeps a copy of the keys, values and entries that it was given in its own KV cache. All
// of it is whole on each rank of a tensor split.

#include <vector>

#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/tensor_cut.h"

namespace macrame::runtime::engine {

// Layers whose keys and values a place keeps, ascending: its own that make some and, of the stages
// before it, those that its layers read.
std::vector<int> KvLayersOf(const ModelConfig& config, const ShardPlace& place);

// A row of what goes into a layer, column by column: the hidden state or the residual streams, the
// inputs of this layer and all behind it, entries and then keys and values of layers before it that
// this one or one behind it reads.
struct CarriedRow {
  struct Part {
    int begin = 0, size = 0;  // 0: it is not handed on
  };
  struct Kv {
    int layer = 0;
    int begin = 0;  // of the keys of all heads; their values stand behind them
    HeadTraits heads{};
    int size() const { return heads.kv_heads * heads.dim; }
  };
  int hidden = 0;       // of all streams
  int weights = 0;      // of the streams, behind them, by which the next half layer reads them
  int first_input = 0;  // the layer whose input stands first
  int input_width = 0;
  Part entry{};       // where the position ends a group: its entry, then the index key
  Part chosen{};      // entries, ascending, then -1
  Part candidates{};  // blocks of entries, ascending, then -1
  std::vector<Kv> kv{};
  int width = 0;
  // Streams keep their bits between stages; and numbers of entries have no place in 16 bits.
  bool as_float32 = false;
  // Of a layer from `first_input` on.
  int InputBegin(int layer) const { return hidden + weights + (layer - first_input) * input_width; }
  const Kv* KvOf(int layer) const;  // null: it is not among them
};

// `layer`: up to layer_count, behind the last one.
CarriedRow CarriedInto(const ModelConfig& config, int layer);
// The widest of them, of any cut.
int CarriedWidthMax(const ModelConfig& config);

}  // namespace macrame::runtime::engine
