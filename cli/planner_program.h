#pragma once

// Asks the programs that stand beside clusterctl what needs no cluster to answer: `planner`, and
// `rankd` about a model's own files.

#include <string>

#include "absl/status/statusor.h"
#include "cli/environment.h"
#include "macrame/v1/planner.pb.h"

namespace macrame::cli {

// MACRAME_PLANNER names another program. An answer's `failure` comes back as a status with its
// reason; INTERNAL when the program can't be started, dies, or takes longer than a minute.
absl::StatusOr<v1::PlannerAnswer> AskPlanner(const v1::PlannerQuestion& question,
                                             const Environment& environment);

// Is a model meant by its folder and not by a name of the catalogue? A path that begins with "/" or
// "." is, and a folder that holds a config.json.
bool NamesModelFolder(const std::string& name_or_path);

// What the model's own files say of it, read by the very code that would load them (`rankd
// --describe`; MACRAME_RANKD names another program). A folder that is no model comes back as a
// status with its reason.
absl::StatusOr<v1::ModelDescription> DescribeModelFolder(const std::string& path,
                                                         const Environment& environment);

// `rankd`, or the program that MACRAME_RANKD names.
std::string RankdProgram(const Environment& environment);

// The model's files say their bits: why --bits is refused beside a folder.
absl::Status BitsAreTheFiles(const std::string& path);

// The text of a file or pipe that the command line names. INVALID_ARGUMENT, saying what to do, when
// it can't be read, is a folder, is empty, is not UTF-8 or is larger than 4 MiB.
absl::StatusOr<std::string> ReadDescription(const std::string& path);

}  // namespace macrame::cli
