#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/planner_program.h"
#include "cli/repaint.h"
#include "cli/sibling_program.h"
#include "macrame/v1/model_import.pb.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

namespace io = google::protobuf::io;

// What a program that stands still may take to say so: long enough for a slow disk to write what
// the system has held back.
constexpr std::chrono::seconds kIdleLimit{600};
constexpr char kModelsFolder[] = ".macrame/models";  // the first of agentd's default model_folders
constexpr uint32_t kUpdateBytesMax = 16U << 20;
constexpr int kBarWidth = 40;

struct ImportOptions {
  std::string file;
  std::string name;
  std::string into;
  std::string tokenizer;
};

// Messages out of a stream of bytes, each after its size as a varint.
class UpdateStream {
 public:
  void Add(std::string_view bytes) {
    held_.erase(0, begin_);
    begin_ = 0;
    held_.append(bytes);
  }

  // The next whole message; unset until more has come, and for ever once the stream makes no sense.
  std::optional<v1::ModelImportUpdate> Next() {
    const size_t held = held_.size() - begin_;
    io::CodedInputStream in(reinterpret_cast<const uint8_t*>(held_.data() + begin_),
                            static_cast<int>(std::min<size_t>(held, kUpdateBytesMax)));
    uint32_t size = 0;
    if (broken_ || !in.ReadVarint32(&size)) return std::nullopt;
    const auto begin = static_cast<size_t>(in.CurrentPosition());
    broken_ = size > kUpdateBytesMax;
    if (broken_ || held - begin < size) return std::nullopt;
    v1::ModelImportUpdate update;
    broken_ = !update.ParseFromArray(held_.data() + begin_ + begin, static_cast<int>(size));
    begin_ += begin + size;
    if (broken_) return std::nullopt;
    return update;
  }

  bool broken() const { return broken_; }

 private:
  std::string held_;
  size_t begin_ = 0;  // of what has not been given yet
  bool broken_ = false;
};

std::string ProgressLine(const v1::ModelImportProgress& progress) {
  const double ratio = progress.bytes_all() == 0 ? 0
                                                 : static_cast<double>(progress.bytes_done()) /
                                                       static_cast<double>(progress.bytes_all());
  return absl::StrCat(Bar(ratio, kBarWidth), " ", GiB(progress.bytes_done()), " of ",
                      GiB(progress.bytes_all()), "\n");
}

std::string KindLine(const v1::ConvertedTensors& kind) {
  const std::string stored =
      kind.bits() == 0 ? "floats" : absl::StrCat(kind.bits(), " bits in groups of 32");
  const std::string how = kind.exact() ? "exact"
                                       : absl::StrFormat("off by %.2g%% (root mean square)",
                                                         100 * kind.relative_error());
  return absl::StrFormat("  %-5s %6s  %9s  %-23s %s\n", Printable(kind.type()),
                         absl::StrCat(kind.tensors()), GiB(kind.bytes()), stored, how);
}

void PrintAsTable(const Invocation& run, const v1::ModelImportResult& result, bool by_name) {
  const v1::ModelDescription& model = result.model();
  std::ostream& out = *run.environment.out;
  out << "Imported " << run.style.Bold(Printable(model.name())) << " (" << model.architecture()
      << ", " << absl::StrFormat("%.0f", static_cast<double>(model.parameter_count()) / 1e6)
      << " million weights) into " << Printable(model.path()) << "\n\n"
      << "  GGUF  tensors       size  now                     numbers\n";
  for (const v1::ConvertedTensors& kind : result.kinds()) out << KindLine(kind);
  if (!result.has_chat_template()) {
    out << "\n"
        << run.style.Warn("No chat template:") << " "
        << Printable(result.no_chat_template().message())
        << "\nRequests that are chats will be refused.\n";
  }
  out << "\nLoad it: clusterctl model load " << Printable(by_name ? model.name() : model.path())
      << "\n";
}

std::string DefaultFolder(const Environment& environment) {
  return absl::StrCat(environment.variable("HOME"), "/", kModelsFolder);
}

std::vector<std::string> Arguments(const ImportOptions& options, const std::string& into) {
  std::vector<std::string> arguments = {"--import", options.file, "--into", into};
  if (!options.name.empty()) arguments.insert(arguments.end(), {"--name", options.name});
  if (!options.tokenizer.empty()) {
    arguments.insert(arguments.end(), {"--tokenizer", options.tokenizer});
  }
  return arguments;
}

// A folder stands for no file: it is a model already, or holds the file that was meant.
absl::Status CheckNoFolder(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error)) return absl::OkStatus();
  std::vector<std::string> files;
  bool has_weights = false;
  constexpr size_t kEntriesMax = 10'000;
  size_t looked_at = 0;
  for (fs::directory_iterator it(path, error), end; !error && it != end && looked_at < kEntriesMax;
       it.increment(error), ++looked_at) {
    const fs::path& entry = it->path();
    has_weights = has_weights || entry.extension() == ".safetensors";
    if (entry.extension() == ".gguf") files.push_back(entry.string());
  }
  std::sort(files.begin(), files.end());
  v1::Reason reason = MakeReason(reasons::kModelFileBroken, absl::StrCat(path, " is a folder"));
  if (!files.empty()) {
    reason.set_remedy(absl::StrCat("name the file: clusterctl model import ", files.front()));
  } else if (has_weights && fs::exists(fs::path(path) / "config.json", error)) {
    reason.set_message(absl::StrCat(path, " is a model's folder already, not a GGUF file"));
    reason.set_remedy(absl::StrCat("there is nothing to import: clusterctl model load ", path));
  } else {
    reason.set_message(absl::StrCat(path, " is a folder without a GGUF file"));
    reason.set_remedy("name the file itself, as it was downloaded to a disk");
  }
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

int RunModelImport(const Invocation& run, const ImportOptions& options) {
  if (const absl::Status folder = CheckNoFolder(options.file); !folder.ok()) {
    return run.Fail(folder);
  }
  const Environment& environment = run.environment;
  const std::string into = options.into.empty() ? DefaultFolder(environment) : options.into;
  v1::ModelImportUpdate last;
  UpdateStream updates;
  InterruptWatch interrupt([] {});
  absl::Status ended;
  {
    Repainter bar(environment, true);
    ended = StreamOutputOf(RankdProgram(environment), Arguments(options, into), kIdleLimit,
                           [&](std::string_view bytes) {
                             updates.Add(bytes);
                             while (auto update = updates.Next()) last = *std::move(update);
                             const bool shows = last.has_progress() && !run.options.quiet &&
                                                environment.err_is_terminal && !bytes.empty();
                             if (shows) bar.Show(ProgressLine(last.progress()));
                             return !interrupt.interrupted() && !updates.broken();
                           });
    if (environment.err_is_terminal) bar.Clear();
  }
  if (interrupt.interrupted()) {
    *environment.err << "Stopped; what was not whole yet is removed from " << Printable(into)
                     << ".\n";
    return interrupt.exit_code();
  }
  if (last.has_failure()) {
    const std::string& code = last.failure().code();
    return run.Fail(ReasonStatus(code == reasons::kModelExists ? absl::StatusCode::kAlreadyExists
                                 : code == reasons::kModelFileMissing ? absl::StatusCode::kNotFound
                                                                      : absl::StatusCode::kInternal,
                                 last.failure()));
  }
  if (!ended.ok() && !updates.broken()) return run.Fail(ended);
  if (!last.has_result()) {
    return run.Fail(ProgramBroken(RankdProgram(environment), "gave an answer that can't be read"));
  }
  if (run.wants_table()) {
    PrintAsTable(run, last.result(), options.into.empty());
  } else {
    run.PrintDocument(Document("ModelImport", last.result()));
  }
  return kExitOk;
}

}  // namespace

void AddModelImport(CommandTree& tree, CLI::App* model) {
  CLI::App* command = tree.Add(
      model, "import", "Convert a GGUF file to a model folder, in little memory, without an agent");
  auto options = std::make_shared<ImportOptions>();
  command->add_option("file", options->file, "GGUF file, or the first of its parts")->required();
  command->add_option("--name", options->name, "Name of the model (default: the file's name)")
      ->type_name("NAME");
  command
      ->add_option("--into", options->into,
                   absl::StrCat("Folder of models (default: ~/", kModelsFolder, ")"))
      ->type_name("FOLDER");
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "Folder to take tokenizer.json and related files from")
      ->type_name("FOLDER");
  tree.OnChosen(command,
                [options](const Invocation& run) { return RunModelImport(run, *options); });
}

}  // namespace macrame::cli
