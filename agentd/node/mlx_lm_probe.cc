#include "agentd/node/mlx_lm_probe.h"

#include <utility>

namespace macrame::agentd {

void MlxLmProbe::Start(std::string python, Found found) {
  thread_ = std::thread([this, python = std::move(python), found = std::move(found),
                         weak = std::weak_ptr<bool>(alive_)] {
    auto second = std::make_shared<runtime::SecondEngine>(runtime::FindMlxLm(python, &stopping_));
    if (stopping_) return;
    dispatcher_.Post([weak, found, second] {
      if (!weak.expired()) found(std::move(*second));
    });
  });
}

void MlxLmProbe::Stop() {
  alive_.reset();
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

}  // namespace macrame::agentd
