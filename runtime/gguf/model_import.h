#pragma once

// From a GGUF file to a model folder that rankd, MLX and every tool beside them load: weights,
// config.json, tokenizer and chat template.
//
// Memory is bounded whatever the model's size: the file is mapped and goes through in pieces of
// kPieceBytes. The folder appears whole or not at all: it is written as ".NAME.importing" beside
// its place, checked with the code that would load it, synced and renamed. What an interrupted
// import left there is removed by the next one of that name.
//
// Errors: those of gguf_file.h, import_plan.h and tokenizer_files.h; MODEL_EXISTS; DISK_SHORT, said
// before anything is written; DISK_WRITE_FAILED; CANCELLED when `on_progress` says so. Blocking;
// any thread.

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "macrame/v1/model_import.pb.h"
#include "runtime/gguf/tensor_conversion.h"

namespace macrame::runtime::gguf {

struct ImportOptions {
  std::string file;              // the GGUF file, or the first of several
  std::string into;              // a model folder; made when it is not there
  std::string name;              // of the model: one part of a path; empty: by model_name.h
  std::string tokenizer_folder;  // take tokenizer.json and its neighbours from here instead
};

absl::StatusOr<v1::ModelImportResult> ImportModel(const ImportOptions& options,
                                                  const OnImportProgress& on_progress);

}  // namespace macrame::runtime::gguf
