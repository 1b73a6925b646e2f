#include "runtime/process/cold_boot.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "mlx/version.h"
#include "runtime/model/config/config_json.h"
#include "runtime/model/weights/weight_files.h"
#include "runtime/model_files/fingerprint.h"
#include "transport/program_path.h"
#include "transport/regular_file.h"

namespace macrame::runtime::engine {
namespace {

// Of copies that a step waits for, and that wait to be written.
constexpr size_t kStepCopyBytes = size_t{4} << 20;
constexpr size_t kUnwrittenBytes = size_t{32} << 20;
// Of one load; kColdLoadsMax may be in memory.
constexpr size_t kLoadBytes = size_t{32} << 20;
constexpr size_t kLoadBlocksMax = 32;
constexpr size_t kStoresPerStepMax = 32;
constexpr size_t kStoresAtOnceMax = 128;

// Another file under the same name has another size or date.
std::string StampOf(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) return "absent";
#ifdef __APPLE__
  const timespec& time = file.st_mtimespec;
#else
  const timespec& time = file.st_mtim;
#endif
  return absl::StrCat(file.st_size, "@", time.tv_sec, ".", time.tv_nsec);
}

}  // namespace

absl::StatusOr<ColdLayout> ColdLayoutOf(const v1::LaunchSpec& spec, const BootedRank& rank) {
  const auto files = WeightFiles::Open(spec.model().path());
  if (!files.ok()) return files.status();
  const auto config = transport::ReadRegularFile(absl::StrCat(spec.model().path(), "/config.json"),
                                                 kConfigBytesMax);
  if (!config.ok()) return config.status();
  const auto fingerprint = FingerprintOf(*config, **files);
  if (!fingerprint.ok()) return fingerprint.status();
  std::string text = absl::StrCat("macrame KV blocks 1\nmodel ", *fingerprint, "\n");
  std::set<std::string> weights;
  for (const auto& [name, tensor] : (*files)->tensors()) weights.insert(tensor.file);
  for (const std::string& path : weights) absl::StrAppend(&text, "file ", StampOf(path), "\n");
  absl::StrAppend(&text, "build ", StampOf(transport::ProgramBesideThis("rankd")), ", MLX ",
                  mlx::core::version(), "\n");
  const v1::Assignment& part = spec.assignment();
  absl::StrAppend(&text, "rank ", spec.rank(), " of ", spec.world_size(), ", tp ", spec.tp(),
                  ", pp ", spec.pp(), ", over ", NameOf(rank.link->backend()), "\n");
  absl::StrAppend(&text, "layers ", part.layer_begin(), " to ", part.layer_end(), ", slices ",
                  part.slice_begin(), " to ", part.slice_end(), " of ", part.slice_count(),
                  part.whole_experts() ? ", whole experts\n" : "\n");
  absl::StrAppend(&text, "blocks of ", kBlockTokens, " tokens, ", rank.engine->layers().kv_layout(),
                  "\n");
  ColdLayout layout;
  layout.content_bytes = rank.engine->layers().stored_block_bytes();
  layout.id = DigestOf(text);
  return layout;
}

std::unique_ptr<ColdWorker> StartColdWorker(const v1::LaunchSpec& spec, const BootedRank& rank,
                                            std::function<void(ColdEvent)> tell) {
  // mlx_lm's caches are its own. A rank without heads has blocks of no bytes, and takes part.
  if (rank.worker.has_value()) return nullptr;
  if (spec.kv_cache_folder().empty() || spec.kv_cache_disk_bytes() == 0) return nullptr;
  const auto layout = ColdLayoutOf(spec, rank);
  if (!layout.ok()) {
    ColdEvent off;
    off.kind = ColdEvent::Kind::kOff;
    off.rank = spec.rank();
    off.text = std::string(layout.status().message());
    tell(std::move(off));
    return nullptr;
  }
  ColdWorker::Options options;
  options.folder = spec.kv_cache_folder();
  options.layout = *layout;
  options.bytes_max = spec.kv_cache_disk_bytes();
  options.rank = spec.rank();
  options.age_max = std::chrono::hours(spec.kv_cache_disk_hours());
  return std::make_unique<ColdWorker>(std::move(options), std::move(tell));
}

ColdTraits ColdTraitsOf(uint32_t ranks, size_t block_bytes) {
  const size_t bytes = std::max<size_t>(block_bytes, 1);
  ColdTraits traits;
  traits.ranks = ranks;
  traits.load_blocks_max =
      static_cast<uint32_t>(std::clamp<size_t>(kLoadBytes / bytes, 1, kLoadBlocksMax));
  traits.stores_per_step =
      static_cast<uint32_t>(std::clamp<size_t>(kStepCopyBytes / bytes, 1, kStoresPerStepMax));
  traits.stores_at_once_max =
      static_cast<uint32_t>(std::clamp<size_t>(kUnwrittenBytes / bytes, 1, kStoresAtOnceMax));
  return traits;
}

void FillKvCacheDisk(const ColdWorker& worker, v1::KvCacheDisk& disk) {
  const ColdCounts counts = worker.counts();
  disk.set_blocks(counts.blocks);
  disk.set_bytes(counts.bytes);
  disk.set_blocks_written(counts.stored);
  disk.set_blocks_read(counts.loaded);
  disk.set_blocks_absent(counts.absent);
  disk.set_files_broken(counts.broken);
  disk.set_blocks_evicted(counts.evicted);
  disk.set_blocks_expired(counts.expired);
  disk.set_writes_dropped(counts.failed + worker.refused());
  disk.set_off_reason(worker.off_reason());
}

}  // namespace macrame::runtime::engine
