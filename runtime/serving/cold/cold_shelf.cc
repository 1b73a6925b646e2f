#include "runtime/serving/cold/cold_shelf.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"

namespace macrame::runtime::engine {
namespace {

// The end of a conversation gives way before its beginning, without which it can't be found.
constexpr int64_t kDepthNs = 1000;
// Of the bound, written since stock was taken: then others' files are looked for again.
constexpr uint64_t kStockShare = 8;
constexpr std::string_view kTemporarySuffix = ".tmp";

std::string_view FolderOf(std::string_view path) { return path.substr(0, path.find('/')); }

std::string_view NameIn(std::string_view path) {
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
}

}  // namespace

ColdShelf::ColdShelf(ColdFiles& files, const ColdLayout& layout, uint64_t bytes_max,
                     std::string own, int64_t age_max_ns)
    : files_(files),
      layout_(layout),
      bytes_max_(bytes_max),
      own_(std::move(own)),
      age_max_ns_(age_max_ns),
      folder_(ColdFolderName(layout)) {}

std::string ColdShelf::PathOf(const BlockName& name) const {
  return absl::StrCat(folder_, "/", ColdFileName(name));
}

bool ColdShelf::BelongsHere(const ColdFiles::Entry& entry, int64_t now_ns) const {
  if (!entry.is_file || !IsColdFolderName(FolderOf(entry.path))) return false;
  const std::string_view name = NameIn(entry.path);
  if (name.ends_with(kTemporarySuffix)) return entry.used_ns + kColdTemporaryNs > now_ns;
  if (!ParseColdFileName(name).has_value()) return false;
  return FolderOf(entry.path) != folder_ || entry.bytes == ColdFileBytes(layout_);
}

void ColdShelf::Put(const std::string& path, Held held) {
  Forget(path);
  bytes_ += held.bytes;
  by_use_.emplace(held.used_ns, path);
  held_.emplace(path, held);
}

void ColdShelf::Forget(const std::string& path) {
  const auto found = held_.find(path);
  if (found == held_.end()) return;
  bytes_ -= found->second.bytes;
  by_use_.erase({found->second.used_ns, path});
  held_.erase(found);
}

// One that the system does not let go is no longer counted on, nor asked for.
void ColdShelf::Remove(const std::string& path) {
  files_.Remove(path).IgnoreError();
  Forget(path);
  if (FolderOf(path) != folder_) return;
  if (const auto name = ParseColdFileName(NameIn(path))) removed_.push_back(*name);
}

absl::Status ColdShelf::Open(int64_t now_ns) {
  const absl::Status made = files_.MakeFolder(folder_);
  if (!made.ok()) return made;
  auto entries = files_.List();
  if (!entries.ok()) return entries.status();
  std::map<std::string, Held> before = std::exchange(held_, {});
  by_use_.clear();
  bytes_ = 0;
  written_since_open_ = 0;
  for (const ColdFiles::Entry& entry : *entries) {
    before.erase(entry.path);
    if (!BelongsHere(entry, now_ns)) {
      ++counts_.broken;
      Remove(entry.path);
    } else if (!NameIn(entry.path).ends_with(kTemporarySuffix)) {
      Put(entry.path, {entry.bytes, std::min(entry.used_ns, now_ns)});
    }
  }
  // Gone without our doing.
  for (const auto& [path, held] : before) {
    const auto name = ParseColdFileName(NameIn(path));
    if (FolderOf(path) == folder_ && name.has_value()) removed_.push_back(*name);
  }
  Expire(now_ns);
  Evict(0);
  return absl::OkStatus();
}

void ColdShelf::Expire(int64_t now_ns) {
  if (age_max_ns_ == 0) return;
  while (!by_use_.empty() && by_use_.begin()->first + age_max_ns_ <= now_ns) {
    ++counts_.expired;
    Remove(std::string(by_use_.begin()->second));
  }
}

void ColdShelf::Evict(uint64_t bytes) {
  while (!by_use_.empty() && bytes_ + bytes > bytes_max_) {
    ++counts_.evicted;
    Remove(std::string(by_use_.begin()->second));
  }
}

bool ColdShelf::WriteFile(const std::string& path, const std::string& bytes) {
  const std::string temporary = absl::StrCat(path, ".", own_, std::string(kTemporarySuffix));
  absl::Status written = files_.Write(temporary, bytes);
  if (written.ok()) written = files_.Rename(temporary, path);
  if (written.ok()) return true;
  ++counts_.failed;
  files_.Remove(temporary).IgnoreError();
  if (absl::IsResourceExhausted(written)) {
    off_reason_ = absl::StrCat("nothing more is written: ", written.message());
  }
  return false;
}

bool ColdShelf::Store(const ColdBlock& block, std::span<const std::byte> content, int64_t now_ns) {
  const BlockName name = NameOf(block);
  const std::string path = PathOf(name);
  if (held_.contains(path)) {
    Touch(name, block.depth, now_ns);
    return true;
  }
  const uint64_t bytes = ColdFileBytes(layout_);
  if (!off_reason_.empty() || bytes > bytes_max_) return false;
  if (written_since_open_ > bytes_max_ / kStockShare) Open(now_ns).IgnoreError();
  Evict(bytes);
  if (!WriteFile(path, EncodeColdFile(layout_, block, content))) return false;
  ++counts_.stored;
  written_since_open_ += bytes;
  Put(path, {bytes, now_ns});
  Touch(name, block.depth, now_ns);
  return true;
}

bool ColdShelf::Load(const ColdBlock& block, int64_t now_ns, std::string* content) {
  const BlockName name = NameOf(block);
  const std::string path = PathOf(name);
  const auto file = files_.Read(path, ColdFileBytes(layout_) + 1);
  if (!file.ok()) {
    ++counts_.absent;
    if (held_.contains(path)) Remove(path);
    return false;
  }
  std::string_view checked;
  if (CheckColdFile(layout_, block, *file, &checked) != ColdFault::kNone) {
    ++counts_.broken;
    Remove(path);
    return false;
  }
  content->assign(checked);
  ++counts_.loaded;
  if (!held_.contains(path)) Put(path, {file->size(), now_ns});  // another rank's
  Touch(name, block.depth, now_ns);
  return true;
}

void ColdShelf::Touch(const BlockName& name, uint32_t depth, int64_t now_ns) {
  const std::string path = PathOf(name);
  const auto found = held_.find(path);
  if (found == held_.end()) return;
  const Held touched{found->second.bytes, now_ns - kDepthNs * depth};
  Put(path, touched);
  files_.SetUsed(path, touched.used_ns).IgnoreError();
}

void ColdShelf::Drop(const BlockName& name) {
  const std::string path = PathOf(name);
  files_.Remove(path).IgnoreError();
  Forget(path);
}

std::vector<BlockName> ColdShelf::Names() const {
  std::vector<BlockName> names;
  for (const auto& [path, held] : held_) {
    if (FolderOf(path) != folder_) continue;
    if (const auto name = ParseColdFileName(NameIn(path))) names.push_back(*name);
  }
  return names;
}

ColdCounts ColdShelf::counts() const {
  ColdCounts counts = counts_;
  counts.bytes = bytes_;
  counts.blocks =
      static_cast<uint64_t>(std::count_if(held_.begin(), held_.end(), [this](const auto& held) {
        return FolderOf(held.first) == folder_;
      }));
  return counts;
}

}  // namespace macrame::runtime::engine
