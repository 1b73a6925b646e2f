#include "transport/links/rdma_hardware.h"

#include <algorithm>

namespace macrame::transport {
namespace {

v1::Fact MacHasHardware(const v1::LinkFacts& facts) {
  if (!facts.rdma_devices().empty()) return v1::FACT_YES;
  if (facts.is_virtual_machine() == v1::FACT_YES) return v1::FACT_NO;
  if (facts.has_thunderbolt() == v1::FACT_NO) return v1::FACT_NO;
  if (facts.kernel_refuses_rdma() == v1::FACT_YES) return v1::FACT_NO;
  const auto is = [](v1::Fact fact) {
    return [fact](const v1::ThunderboltPort& port) { return port.is_thunderbolt5() == fact; };
  };
  const auto& ports = facts.ports();
  if (std::any_of(ports.begin(), ports.end(), is(v1::FACT_YES))) return v1::FACT_YES;
  const bool all_older = !ports.empty() && std::all_of(ports.begin(), ports.end(), is(v1::FACT_NO));
  return all_older ? v1::FACT_NO : v1::FACT_UNKNOWN;
}

}  // namespace

v1::Fact HasRdmaHardware(const v1::LinkFacts& facts) {
  if (facts.is_mac() == v1::FACT_YES) return MacHasHardware(facts);
  if (!facts.rdma_devices().empty()) return v1::FACT_YES;
  const bool is_known = facts.is_mac() == v1::FACT_NO && !facts.verbs_library_missing() &&
                        facts.rdma_devices_listed() == v1::FACT_YES;
  return is_known ? v1::FACT_NO : v1::FACT_UNKNOWN;
}

}  // namespace macrame::transport
