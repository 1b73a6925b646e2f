#pragma once

// Hears from the system that an interface, an address or a device changed, so that nobody waits for
// the next periodic probe. What changed is not said: look again.
//
// Linux: rtnetlink(7) and kernel object events. macOS: the routing socket, route(4).

#include <functional>
#include <memory>

namespace macrame::discovery {

class LinkWatcher {
 public:
  // `on_change` runs on the watcher's own thread, once for each burst that the system reports.
  explicit LinkWatcher(std::function<void()> on_change);
  ~LinkWatcher();  // waits for the thread

  // False where the system tells nothing: probes are periodic only.
  bool watches() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace macrame::discovery
