// What Mach and sysctl(3) tell a Mac's own process within microseconds; the rest is MacProbe's.

#include <mach/mach.h>
#include <mach/mach_host.h>
#include <sys/sysctl.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "discovery/parsers/mac_parsers.h"
#include "discovery/probe/mac_probe.h"

namespace macrame::discovery {
namespace {

class DarwinProbe : public MacProbe {
 public:
  explicit DarwinProbe(CommandRunner& runner) : MacProbe(runner), host_(mach_host_self()) {}
  ~DarwinProbe() override { mach_port_deallocate(mach_task_self(), host_); }

  // A call that fails leaves what the commands told.
  void SampleFastLoad(v1::NodeLoad& load) override {
    int level = 0;
    size_t size = sizeof(level);
    if (sysctlbyname("kern.memorystatus_vm_pressure_level", &level, &size, nullptr, 0) == 0 &&
        level > 0) {
      load.set_memory_pressure(PressureOfLevel(static_cast<uint64_t>(level)));
    }
    xsw_usage swap{};
    size = sizeof(swap);
    if (sysctlbyname("vm.swapusage", &swap, &size, nullptr, 0) == 0) {
      load.set_swap_used_bytes(swap.xsu_used);
    }
    SampleMemory(load);
    SampleCpu(load);
  }

 private:
  void SampleMemory(v1::NodeLoad& load) {
    vm_statistics64_data_t stat{};
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    vm_size_t page_bytes = 0;
    if (host_statistics64(host_, HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&stat), &count) !=
            KERN_SUCCESS ||
        host_page_size(host_, &page_bytes) != KERN_SUCCESS) {
      return;
    }
    VmStat pages;
    pages.page_bytes = page_bytes;
    // Here the free pages include the speculative ones; vm_stat prints them apart.
    pages.free = stat.free_count - std::min(stat.free_count, stat.speculative_count);
    pages.speculative = stat.speculative_count;
    pages.file_backed = stat.external_page_count;
    pages.purgeable = stat.purgeable_count;
    if (const auto available = AvailableBytes(pages, load.memory_pressure())) {
      load.set_memory_available_bytes(*available);
    }
  }

  void SampleCpu(v1::NodeLoad& load) {
    host_cpu_load_info_data_t info{};
    mach_msg_type_number_t count = HOST_CPU_LOAD_INFO_COUNT;
    if (host_statistics(host_, HOST_CPU_LOAD_INFO, reinterpret_cast<host_info_t>(&info), &count) !=
        KERN_SUCCESS) {
      return;
    }
    // Each counter is 32 bits wide and wraps; differences of unsigned numbers do not mind.
    const auto before = std::exchange(last_, info);
    if (before.has_value()) {
      uint64_t all = 0;
      for (int i = 0; i < CPU_STATE_MAX; ++i) {
        all += static_cast<uint32_t>(info.cpu_ticks[i] - before->cpu_ticks[i]);
      }
      const uint32_t idle = info.cpu_ticks[CPU_STATE_IDLE] - before->cpu_ticks[CPU_STATE_IDLE];
      if (all > 0) busy_ = 1.0 - static_cast<double>(idle) / static_cast<double>(all);
    }
    if (busy_.has_value()) load.set_cpu_busy_ratio(std::clamp(*busy_, 0.0, 1.0));
  }

  const mach_port_t host_;
  std::optional<host_cpu_load_info_data_t> last_;
  std::optional<double> busy_;
};

}  // namespace

std::unique_ptr<NodeProbe> MakeNodeProbe(const std::string& root, CommandRunner& runner) {
  (void)root;
  return std::make_unique<DarwinProbe>(runner);
}

v1::InterfaceKind QuickInterfaceKind(const std::string& root, const std::string& name) {
  (void)root;
  return KindFromName(name);
}

}  // namespace macrame::discovery
