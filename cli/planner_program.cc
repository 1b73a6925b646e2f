#include "cli/planner_program.h"

#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/command.h"
#include "cli/format/text.h"
#include "cli/sibling_program.h"
#include "proto/reasons.h"
#include "proto/utf8.h"
#include "transport/program_path.h"
#include "transport/regular_file.h"

namespace macrame::cli {
namespace {

constexpr size_t kDescriptionBytesMax = 4U << 20;

std::string ProgramOf(const Environment& environment, const char* variable, const char* name) {
  const std::string named = environment.variable(variable);
  return named.empty() ? transport::ProgramBesideThis(name) : named;
}

absl::Status Unreadable(const std::string& path, const std::string& what,
                        const std::string& remedy) {
  v1::Reason reason = MakeReason(reasons::kBadRequest, absl::StrCat(path, " ", what));
  reason.set_remedy(remedy);
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

}  // namespace

std::string RankdProgram(const Environment& environment) {
  return ProgramOf(environment, "MACRAME_RANKD", "rankd");
}

absl::StatusOr<v1::PlannerAnswer> AskPlanner(const v1::PlannerQuestion& question,
                                             const Environment& environment) {
  const std::string program = ProgramOf(environment, "MACRAME_PLANNER", "planner");
  const auto output = OutputOf(program, {}, question.SerializeAsString());
  if (!output.ok()) return output.status();
  v1::PlannerAnswer answer;
  if (!answer.ParseFromString(*output)) {
    return ProgramBroken(program, "gave an answer that can't be read");
  }
  if (!answer.has_failure()) return answer;
  const std::string& code = answer.failure().code();
  return ReasonStatus(code == reasons::kModelNotFound ? absl::StatusCode::kNotFound
                      : code == reasons::kNoOffer     ? absl::StatusCode::kResourceExhausted
                                                      : absl::StatusCode::kInvalidArgument,
                      answer.failure());
}

bool NamesModelFolder(const std::string& name_or_path) {
  return std::filesystem::path(AbsoluteModelPath(name_or_path)).is_absolute();
}

absl::StatusOr<v1::ModelDescription> DescribeModelFolder(const std::string& path,
                                                         const Environment& environment) {
  const std::string program = RankdProgram(environment);
  const auto output = OutputOf(program, {"--describe", AbsoluteModelPath(path)}, "");
  if (!output.ok()) return output.status();
  v1::ModelFolderAnswer answer;
  if (!answer.ParseFromString(*output) || answer.about_case() == answer.ABOUT_NOT_SET) {
    return ProgramBroken(program, "gave an answer that can't be read");
  }
  if (answer.has_model()) return std::move(*answer.mutable_model());
  v1::Reason reason = answer.failure();
  const bool absent = reason.code() == reasons::kModelNotFound;
  if (absent) reason.set_remedy("name the folder that holds the model's config.json");
  if (reason.code() == reasons::kModelArchitectureUnknown) {
    reason.set_remedy(
        "a name of the catalogue, or an entry of a --catalogue of your own, is planned without "
        "files");
  }
  return ReasonStatus(absent ? absl::StatusCode::kNotFound : absl::StatusCode::kFailedPrecondition,
                      reason);
}

absl::Status BitsAreTheFiles(const std::string& path) {
  v1::Reason reason = MakeReason(
      reasons::kBadRequest, absl::StrCat("the files of ", path, " say how many bits they have"));
  reason.set_remedy("leave out --bits, or name a model of the catalogue");
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

absl::StatusOr<std::string> ReadDescription(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Unreadable(path, "is a folder", "name a YAML file in it");
  }
  const auto read = transport::ReadFileOrPipe(path, kDescriptionBytesMax);
  if (absl::IsOutOfRange(read.status())) {
    return Unreadable(path, "has more than 4 MiB, the most that a description may have",
                      "name the YAML file that describes it, not a model's weights");
  }
  if (!read.ok()) {
    absl::string_view what = read.status().message();
    absl::ConsumePrefix(&what, absl::StrCat(path, " "));
    return Unreadable(
        path,
        absl::IsNotFound(read.status()) ? "can't be read: it is not there" : std::string(what),
        "check its name and who may read it");
  }
  const std::string& text = *read;
  if (absl::StripAsciiWhitespace(text).empty()) {
    return Unreadable(path, "is empty",
                      "deploy/catalogue has examples of clusters and of models' entries");
  }
  if (const size_t wrong = FirstNonUtf8(text); wrong < text.size()) {
    return Unreadable(path, absl::StrCat("is not text in UTF-8, at byte ", wrong),
                      "save it as a YAML file in UTF-8");
  }
  return text;
}

}  // namespace macrame::cli
