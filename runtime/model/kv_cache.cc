#include "runtime/model/kv_cache.h"

#include <algorithm>

#include "proto/check.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

int CapacityFor(int needed, int maximum) {
  const int steps = (needed + KvCache::kGrowthPositions - 1) / KvCache::kGrowthPositions;
  return std::min(steps * KvCache::kGrowthPositions, maximum);
}

KvCache::KvCache(int layers, int capacity_max) : layers_(layers), capacity_max_(capacity_max) {}

void KvCache::Grow(std::vector<mx::array>& buffer, const mx::array& like, int capacity,
                   int wanted) {
  const mx::Shape added{1, like.shape(1), wanted - capacity, like.shape(3)};
  mx::array grown = mx::zeros(added, like.dtype());
  if (buffer.empty()) {
    buffer.push_back(std::move(grown));
  } else {
    buffer[0] = mx::concatenate({buffer[0], grown}, 2);
  }
}

KvCache::View KvCache::Append(int layer, const mx::array& keys, const mx::array& values,
                              int begin) {
  Layer& entry = layers_[layer];
  const int end = begin + keys.shape(2);
  MACRAME_CHECK(begin >= 0 && end <= capacity_max_) << end << " positions of " << capacity_max_;
  if (end > entry.capacity) {
    const int wanted = CapacityFor(end, capacity_max_);
    Grow(entry.keys, keys, entry.capacity, wanted);
    Grow(entry.values, values, entry.capacity, wanted);
    entry.capacity = wanted;
  }
  const auto write = [&](mx::array& buffer, const mx::array& update) {
    const mx::Shape stop{1, update.shape(1), end, update.shape(3)};
    buffer = mx::slice_update(buffer, update, mx::Shape{0, 0, begin, 0}, stop);
    return mx::slice(buffer, mx::Shape{0, 0, 0, 0}, stop);
  };
  mx::array seen_keys = write(entry.keys[0], keys);
  mx::array seen_values = write(entry.values[0], values);
  return {std::move(seen_keys), std::move(seen_values)};
}

void KvCache::AppendBuffers(std::vector<mx::array>& out) const {
  for (const Layer& layer : layers_) {
    out.insert(out.end(), layer.keys.begin(), layer.keys.end());
    out.insert(out.end(), layer.values.begin(), layer.values.end());
  }
}

}  // namespace macrame::runtime::engine
