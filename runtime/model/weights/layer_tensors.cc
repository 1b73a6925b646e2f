// Which maps and vectors a layer has, in the order in which they are read.

#include <initializer_list>
#include <vector>

#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {
namespace {

using Maps = std::vector<const LinearNeed*>;

// Those of `maps` that the layer has.
void AddPresent(std::initializer_list<const LinearNeed*> maps, Maps* all) {
  for (const LinearNeed* map : maps) {
    if (!map->module.empty()) all->push_back(map);
  }
}

void AddLatentMaps(const LatentNeeds& latent, bool is_by_head, Maps* all) {
  if (latent.q_a.has_value()) all->push_back(&*latent.q_a);
  all->insert(all->end(), {&latent.q_b, &latent.kv_a});
  if (is_by_head) {
    all->insert(all->end(), {&latent.embed_q, &latent.unembed_out});
  } else {
    all->push_back(&latent.kv_b);
  }
  if (latent.index.has_value()) {
    all->insert(all->end(), {&latent.index->wq_b, &latent.index->wk, &latent.index->weights});
  }
}

// What a layer mixes tokens with.
void AddMixerMaps(const LayerNeeds& needs, bool is_by_head, Maps* all) {
  if (needs.latent.has_value()) {
    AddLatentMaps(*needs.latent, is_by_head, all);
  } else if (needs.compressed.has_value()) {
    const CompressedNeeds& own = *needs.compressed;
    AddPresent({&own.q_a, &own.q_b, &own.kv, &own.entry, &own.entry_gate, &own.index_key,
                &own.index_q, &own.index_weights, &own.group_out},
               all);
  } else if (needs.recurrent.has_value()) {
    for (const LinearNeed& map : needs.recurrent->in) all->push_back(&map);
  } else if (!needs.q.module.empty()) {
    AddPresent({&needs.q, &needs.k, &needs.v}, all);
  }
  if (const auto& index = needs.block_index) {
    all->insert(all->end(), {&index->query, &index->key});
  }
  AddPresent({&needs.o}, all);
}

void AddFeedMaps(const FeedNeeds& feed, Maps* all) {
  AddPresent({&feed.gate}, all);
  all->insert(all->end(), {&feed.up, &feed.down});
}

// As they lie in a stacked file: the gates of all experts, …
void AddExpertMaps(const std::vector<FeedNeeds>& experts, Maps* all) {
  for (const FeedNeeds& expert : experts) AddPresent({&expert.gate}, all);
  for (const FeedNeeds& expert : experts) all->push_back(&expert.up);
  for (const FeedNeeds& expert : experts) all->push_back(&expert.down);
}

}  // namespace

std::vector<const LinearNeed*> LinearsOf(const LayerNeeds& needs, const WeightFiles& files) {
  return LinearsOf(needs, needs.latent.has_value() && IsStoredByHead(*needs.latent, files));
}

std::vector<const LinearNeed*> LinearsOf(const LayerNeeds& needs, bool is_by_head) {
  Maps all;
  AddMixerMaps(needs, is_by_head, &all);
  for (const auto* streams : {&needs.attention_streams, &needs.feed_streams}) {
    if (streams->has_value()) all.push_back(&(*streams)->map);
  }
  if (needs.feed.has_value()) AddFeedMaps(*needs.feed, &all);
  if (needs.router.has_value()) all.push_back(&*needs.router);
  AddExpertMaps(needs.experts, &all);
  if (needs.shared.has_value()) AddFeedMaps(*needs.shared, &all);
  if (needs.shared_router.has_value()) all.push_back(&*needs.shared_router);
  if (needs.input.has_value()) {
    all.insert(all.end(), {&needs.input->gate, &needs.input->projection});
  }
  return all;
}

std::vector<const VectorNeed*> VectorsOf(const LayerNeeds& needs) {
  std::vector<const VectorNeed*> all = {&needs.attention_norm, &needs.attention_out_norm,
                                        &needs.feed_norm,      &needs.feed_out_norm,
                                        &needs.q_norm,         &needs.k_norm,
                                        &needs.sinks,          &needs.score_bias};
  if (needs.latent.has_value()) {
    all.insert(all.end(), {&needs.latent->q_a_norm, &needs.latent->kv_a_norm});
    if (const auto& index = needs.latent->index; index.has_value()) {
      all.insert(all.end(), {&index->key_norm, &index->key_norm_bias});
    }
  }
  if (needs.compressed.has_value()) {
    const CompressedNeeds& own = *needs.compressed;
    all.insert(all.end(), {&own.q_a_norm, &own.kv_norm, &own.entry_norm, &own.index_key_norm});
  }
  if (const auto& index = needs.block_index) {
    all.insert(all.end(), {&index->query_norm, &index->key_norm});
  }
  for (const auto* streams : {&needs.attention_streams, &needs.feed_streams}) {
    if (streams->has_value()) all.insert(all.end(), {&(*streams)->base, &(*streams)->scale});
  }
  if (needs.recurrent.has_value()) {
    const RecurrentNeeds& own = *needs.recurrent;
    all.insert(all.end(),
               {&own.taps, &own.taps_bias, &own.decay, &own.step_bias, &own.skip, &own.norm});
  }
  if (needs.beside.has_value()) {
    const BesideNeeds& own = *needs.beside;
    all.insert(all.end(), {&own.feed_out_norm, &own.experts_in_norm, &own.experts_out_norm,
                           &own.router_scale, &own.expert_scales});
  }
  if (needs.input.has_value()) all.push_back(&needs.input->norm);
  all.push_back(&needs.scalar);
  return all;
}

}  // namespace macrame::runtime::engine
