#include "discovery/probe/inventory.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "discovery/base/plain_text.h"

namespace macrame::discovery {
namespace {

constexpr size_t kHostnameBytesMax = 255;

bool IsSmallMove(const v1::Disk& a, const v1::Disk& b) {
  const uint64_t moved = a.free_bytes() > b.free_bytes() ? a.free_bytes() - b.free_bytes()
                                                         : b.free_bytes() - a.free_bytes();
  return a.path() == b.path() && a.total_bytes() == b.total_bytes() &&
         moved <= a.total_bytes() / 100;
}

}  // namespace

ModelsMemory ModelsMemoryOf(const v1::Inventory& inventory) {
  const uint64_t total = inventory.memory_total_bytes();
  const uint64_t limit = inventory.memory_models_max_bytes();
  ModelsMemory memory{inventory.memory_gpu_usable_bytes(), false};
  if (memory.bytes == 0 || (total > 0 && total < memory.bytes)) memory.bytes = total;
  if (limit > 0 && (memory.bytes == 0 || limit < memory.bytes)) memory = {limit, true};
  return memory;
}

uint64_t WorkingSetOf(const v1::Inventory& inventory) {
  return inventory.gpu_cores() > 0 ? inventory.memory_gpu_usable_bytes() : 0;
}

bool SameFacts(const v1::Inventory& a, const v1::Inventory& b) {
  if (a.disks_size() != b.disks_size()) return false;
  for (int i = 0; i < a.disks_size(); ++i) {
    if (!IsSmallMove(a.disks(i), b.disks(i))) return false;
  }
  v1::Inventory first = a;
  v1::Inventory second = b;
  for (v1::Inventory* inventory : {&first, &second}) {
    inventory->set_revision(0);
    inventory->clear_disks();
    // Words that change with every asking are no facts.
    for (v1::Reason& reason : *inventory->mutable_unknown()) reason.clear_evidence();
  }
  return first.SerializeAsString() == second.SerializeAsString();
}

std::string LocalHostname() {
  char name[kHostnameBytesMax + 1] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "unnamed";
  return ToPlainText(name, kHostnameBytesMax);
}

}  // namespace macrame::discovery
