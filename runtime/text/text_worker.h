#pragma once

// Processes for work on texts that can't be stopped inside of a process: tokenising a text that a
// normaliser chokes on, compiling a grammar that unfolds, rendering many messages. Such a process
// is this very program in another mode. It loads the model's text files again, is killed where its
// work goes beyond its limit of time or memory, and gives all of it back; the next piece of work
// starts a fresh one. Ordinary texts never leave the process (IsTame).

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace macrame::runtime::text {

// From here on tokenizers, templates and grammars use such processes; before, all work is done
// where it is asked for. `program` is started with the argument --text-worker and is to call
// RunTextWorker; empty: the program that this process runs. Any thread.
absl::Status UseTextWorkers(const std::string& program = "");

// What such a process is there for: does the work of the parent that gave its socket as stdin,
// until that is gone. The process has no other threads and nothing else to do.
void RunTextWorker();

// Whether every tokenizer takes time and memory in proportion to `text`. Some microseconds for a
// kilobyte. Any thread.
bool IsTame(std::string_view text);

}  // namespace macrame::runtime::text
