#pragma once

namespace macrame::transport {

// Gives the memory that was freed back to the system, from all arenas of the allocator: glibc keeps
// what many small values took. Any thread; takes some milliseconds. Does nothing elsewhere.
void ReleaseFreedMemory();

}  // namespace macrame::transport
