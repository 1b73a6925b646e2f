// The functions of libSystem that a program calls most. They are emulated with it, since a call out
// of the emulation takes longer than they do.
#include <stddef.h>
#include <stdint.h>

enum { kClasses = 64 };
// Stands before each piece of memory. Freed ones of one class are a list.
typedef struct Block {
  size_t class_;
  struct Block* next;
} Block;

extern char macho_heap_begin[];  // run_macho.py binds these two, and maps what is between them
extern char macho_heap_end[];
extern void macho_heap_full(void);

static char* unused_;
static Block* free_[kClasses];

// The power of two that holds `size`.
static size_t ClassOf(size_t size) {
  return size <= 16 ? 4 : 64 - (size_t)__builtin_clzl(size - 1);
}

static Block* Take(size_t class_, size_t alignment) {
  const size_t size = (size_t)1 << class_;
  if (!unused_) unused_ = macho_heap_begin;
  uintptr_t at = ((uintptr_t)unused_ + sizeof(Block) + alignment - 1) & ~(alignment - 1);
  if (size > (size_t)(macho_heap_end - (char*)at)) macho_heap_full();
  unused_ = (char*)at + size;
  Block* block = (Block*)at - 1;
  block->class_ = class_;
  return block;
}

void* malloc(size_t size) {
  const size_t class_ = ClassOf(size);
  Block* block = free_[class_];
  if (block) {
    free_[class_] = block->next;
  } else {
    block = Take(class_, 16);
  }
  return block + 1;
}

void* aligned_alloc(size_t alignment, size_t size) {
  return alignment <= 16 ? malloc(size) : Take(ClassOf(size), alignment) + 1;
}

void free(void* memory) {
  if (!memory) return;
  Block* block = (Block*)memory - 1;
  block->next = free_[block->class_];
  free_[block->class_] = block;
}

void bzero(void* memory, size_t size) {
  // Without memset, which the compiler would make this of.
  char* at = memory;
  for (; size >= 8; size -= 8, at += 8) __builtin_memcpy(at, &(uint64_t){0}, 8);
  while (size--) *at++ = 0;
}

void* memchr(const void* memory, int byte, size_t size) {
  for (const unsigned char* at = memory; size--; ++at)
    if (*at == (unsigned char)byte) return (void*)at;
  return NULL;
}

int strcmp(const char* a, const char* b) {
  while (*a && *a == *b) ++a, ++b;
  return (unsigned char)*a - (unsigned char)*b;
}
