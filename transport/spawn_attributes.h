#pragma once

// How the product starts another program: each signal at its default and none blocked, whatever
// this process does with them, and on a Mac nothing open but what its file actions say. Any thread.

#include <spawn.h>

#include <csignal>

namespace macrame::transport {

class SpawnAttributes {
 public:
  // Whose group the program is in: its own, or this process's, so that who ends the group ends it.
  enum class Group { kOwn, kParents };

  explicit SpawnAttributes(Group group) {
    posix_spawnattr_init(&attributes_);
    int flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
    if (group == Group::kOwn) flags |= POSIX_SPAWN_SETPGROUP;
#ifdef POSIX_SPAWN_CLOEXEC_DEFAULT
    flags |= POSIX_SPAWN_CLOEXEC_DEFAULT;
#endif
    posix_spawnattr_setflags(&attributes_, static_cast<short>(flags));
    posix_spawnattr_setpgroup(&attributes_, 0);
    sigset_t signals;
    sigfillset(&signals);
    sigdelset(&signals, SIGKILL);
    sigdelset(&signals, SIGSTOP);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
  }
  ~SpawnAttributes() { posix_spawnattr_destroy(&attributes_); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;

  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

}  // namespace macrame::transport
