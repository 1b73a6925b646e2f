// `run` and `chat`: one question, or a conversation, with a model that is loaded, or will be.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <istream>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/answer.h"
#include "cli/chat_session.h"
#include "cli/command.h"
#include "cli/duration.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/load_wait.h"
#include "cli/model_name.h"
#include "proto/reasons.h"
#include "proto/suggestions.h"

namespace macrame::cli {
namespace {

constexpr char kHowToLeave[] = "(Ctrl-D or /bye leaves; so does Ctrl-C once more)\n";

struct ChatOptions {
  std::string model, question;
  std::string timeout = "10m";
  ChatSettings settings;
  bool no_thinking = false;
  bool no_history = false;
};

// The one deployment that `name` means among those that are served: by its own name, else by its
// model's, else by a beginning or an end that no other has. Null: none, or several.
const v1::DeploymentStatus* FindServed(const v1::ClusterStatus& status, const std::string& name) {
  const auto only = [&](const auto& matches) {
    const v1::DeploymentStatus* found = nullptr;
    for (const v1::DeploymentStatus& deployment : status.deployments()) {
      if (!matches(deployment.deployment())) continue;
      if (found != nullptr) return static_cast<const v1::DeploymentStatus*>(nullptr);
      found = &deployment;
    }
    return found;
  };
  const v1::DeploymentStatus* found =
      only([&](const v1::Deployment& one) { return one.name() == name; });
  if (found == nullptr) {
    found = only([&](const v1::Deployment& one) {
      return one.model_name() == name || (!one.model_path().empty() && one.model_path() == name);
    });
  }
  if (found != nullptr || name.empty()) return found;
  return only([&](const v1::Deployment& one) {
    return absl::StartsWithIgnoreCase(one.name(), name) ||
           absl::EndsWithIgnoreCase(one.name(), name);
  });
}

std::vector<std::string> ServedNames(const v1::ClusterStatus& status) {
  std::vector<std::string> names;
  for (const v1::DeploymentStatus& deployment : status.deployments()) {
    names.push_back(deployment.deployment().name());
  }
  return names;
}

absl::Status NotServed(const v1::ClusterStatus& status, const std::string& name) {
  const std::vector<std::string> names = ServedNames(status);
  v1::Reason reason;
  if (names.empty()) {
    reason = MakeReason(reasons::kModelNotLoaded, "no model is loaded");
    reason.set_remedy(absl::StrCat("clusterctl run ", name.empty() ? "NAME" : name,
                                   " loads one; clusterctl ls lists them"));
  } else if (name.empty()) {
    reason = MakeReason(reasons::kModelNotLoaded, "several models are loaded: which one?");
    reason.set_remedy(absl::StrCat("clusterctl chat NAME, one of: ", NameList(names)));
  } else {
    reason = MakeReason(reasons::kModelNotLoaded,
                        absl::StrCat("no model '", name, "' is loaded", DidYouMean(name, names)));
    reason.set_remedy(
        absl::StrCat("clusterctl run ", name, " loads it; loaded: ", NameList(names)));
  }
  return ReasonStatus(absl::StatusCode::kNotFound, reason);
}

// Without what is being removed, which answers nobody any more.
absl::StatusOr<v1::ClusterStatus> StatusOfServed(AgentClient& client) {
  absl::StatusOr<v1::ClusterStatus> status = client.GetStatus();
  if (!status.ok()) return status;
  auto& deployments = *status->mutable_deployments();
  const auto end = std::remove_if(
      deployments.begin(), deployments.end(),
      [](const v1::DeploymentStatus& one) { return one.state() == v1::DEPLOYMENT_STATE_REMOVING; });
  deployments.erase(end, deployments.end());
  return status;
}

// The name that is served, for `run` after it was loaded if it wasn't. Not OK: it was said why, and
// `exit_code` is set.
std::optional<std::string> ServedName(const Invocation& run, const ChatOptions& options,
                                      bool may_load, int* exit_code) {
  AgentClient client(run.options.agent);
  const std::string meant = ModelMeantBy(client, options.model);
  const auto status = StatusOfServed(client);
  if (!status.ok()) {
    *exit_code = run.Fail(status.status());
    return std::nullopt;
  }
  const std::string name = may_load ? AbsoluteModelPath(meant) : meant;
  const v1::DeploymentStatus* served = options.model.empty() && status->deployments_size() == 1
                                           ? &status->deployments(0)
                                           : FindServed(*status, name);
  if (served != nullptr && (served->state() == v1::DEPLOYMENT_STATE_READY || !may_load)) {
    return served->deployment().name();
  }
  if (!may_load) {
    *exit_code = run.Fail(NotServed(*status, options.model));
    return std::nullopt;
  }
  v1::LoadModelRequest request;
  // One that is on its way is waited for as it was asked for.
  request.set_name_or_path(name);
  if (served != nullptr) {
    request.set_name_or_path(served->deployment().name());
    request.set_deployment_name(served->deployment().name());
    *request.mutable_placement() = served->deployment().placement();
    request.set_replicas(served->deployment().replicas());
  }
  request.set_timeout_ms(static_cast<uint32_t>(ParseDuration(options.timeout)->count()));
  v1::DeploymentStatus loaded;
  *exit_code = LoadAndWait(run, client, request, &loaded);
  if (*exit_code != kExitOk) return std::nullopt;
  return loaded.deployment().name();
}

// A conversation at a terminal, or of lines that a test hands in.
class ChatLoop {
 public:
  ChatLoop(const Invocation& run, std::string deployment, const ChatOptions& options)
      : run_(run), session_(std::move(deployment), options.settings) {
    const Environment& environment = run.environment;
    if (!environment.can_edit_lines) return;
    LineEditorOptions editing;
    if (!options.no_history) editing.history_file = ChatHistoryFile(environment.variable("HOME"));
    editing.completions = ChatSession::CommandWords();
    editing.use_bold = run.style.color();
    editor_ = std::make_unique<LineEditor>(std::move(editing));
  }

  int Run() {
    *run_.environment.err << run_.err_style.Dim(
        "/help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves\n");
    const InterruptGap gap;
    while (const std::optional<std::string> text = ReadText()) {
      if (text->empty()) continue;
      if ((*text)[0] == '/') {
        const ChatSession::Outcome outcome = session_.Command(*text);
        *run_.environment.out << outcome.told << std::flush;
        if (outcome.is_over) return kExitOk;
      } else if (const int code = AskInTurn(*text); code != kExitOk) {
        return code;
      }
    }
    return exit_code_;
  }

 private:
  // Nullopt at the end of the input, or when it was interrupted twice.
  std::optional<std::string> ReadText() {
    ChatLines lines;
    bool was_told = false;
    while (true) {
      const char* prompt = lines.is_open() ? "... " : ">>> ";
      std::string line;
      const LineEditor::End end =
          editor_ != nullptr ? EditLine(prompt, &line) : ReadLine(prompt, &line);
      if (end == LineEditor::End::kInterrupted) {
        if (line.empty() && !lines.is_open()) {
          if (was_told) return exit_code_ = kExitInterrupted, std::nullopt;
          *run_.environment.err << kHowToLeave << std::flush;
          was_told = true;
        }
        lines.Drop();
        continue;
      }
      was_told = false;
      if (end == LineEditor::End::kInputOver) {
        *run_.environment.out << "\n" << std::flush;
        return std::nullopt;
      }
      if (auto text = lines.Add(line)) {
        if (editor_ != nullptr) editor_->Remember(*text);
        return text;
      }
    }
  }

  LineEditor::End EditLine(const char* prompt, std::string* line) {
    *run_.environment.out << std::flush;
    LineEditor::Line read = editor_->Read(prompt);
    *line = std::move(read.text);
    return read.end;
  }

  // Where lines can't be edited. Ctrl-C says how to leave; a second one does.
  LineEditor::End ReadLine(const char* prompt, std::string* line) {
    std::atomic<InterruptWatch*> watch{nullptr};
    InterruptWatch interrupt([&] {
      const InterruptWatch* own = watch.load();
      if (own != nullptr && own->exit_code() == kExitTerminated) {
        // Its handler is the system's again.
        kill(getpid(), SIGTERM);
      }
      *run_.environment.err << "\n" << kHowToLeave << std::flush;
    });
    watch = &interrupt;
    // Who sees it may press Ctrl-C at once.
    *run_.environment.out << run_.style.Bold(prompt) << std::flush;
    return std::getline(*run_.environment.in, *line) ? LineEditor::End::kLine
                                                     : LineEditor::End::kInputOver;
  }

  // What is wrong with one question ends no conversation.
  int AskInTurn(const std::string& question) {
    size_t forgotten = 0;
    Asked asked = Converse(run_, session_.Request(question));
    while (ReasonOf(asked.ended).code() == reasons::kPromptTooLong && session_.ForgetOldest()) {
      ++forgotten;
      asked = Converse(run_, session_.Request(question));
    }
    if (forgotten > 0) {
      *run_.environment.err << run_.err_style.Dim(absl::StrCat(
          "the oldest ", Plural(forgotten, "question"), forgotten == 1 ? " was" : " were",
          " forgotten: the conversation no longer fits the context\n"));
    }
    session_.NoteAnswer(question, asked.answer.text);
    if (asked.interrupted == kExitTerminated) return kExitTerminated;
    if (asked.interrupted != 0) {
      *run_.environment.err << run_.err_style.Dim("(stopped)\n") << std::flush;
      return kExitOk;
    }
    if (!asked.ended.ok()) {
      const int code = run_.Fail(asked.ended);
      return code == kExitUnreachable ? code : kExitOk;
    }
    if (!run_.options.quiet) {
      *run_.environment.err << run_.err_style.Dim(AnswerStatistics(asked.answer)) << std::flush;
    }
    return kExitOk;
  }

  const Invocation& run_;
  ChatSession session_;
  std::unique_ptr<LineEditor> editor_;  // null where lines can't be edited
  int exit_code_ = kExitOk;
};

absl::Status Wrong(std::string what, const std::string& remedy) {
  v1::Reason reason = MakeReason(reasons::kBadRequest, std::move(what));
  reason.set_remedy(remedy);
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

int RunChat(const Invocation& run, ChatOptions options, bool may_load) {
  const Environment& environment = run.environment;
  if (options.no_thinking) options.settings.thinking = false;
  const bool is_piped = options.question.empty() && !environment.in_is_terminal;
  if (is_piped) {
    auto read = ReadQuestion(*environment.in);
    if (!read.ok()) return run.Fail(read.status());
    options.question = *std::move(read);
  }
  if (is_piped && options.question.empty()) {
    return run.Fail(Wrong("no question", "give one as an argument, or pipe it in"));
  }
  if (options.question.empty() && !run.wants_table()) {
    return run.Fail(Wrong("a conversation has no documents", "give a question, or leave -o out"));
  }
  int code = kExitOk;
  const std::optional<std::string> name = ServedName(run, options, may_load, &code);
  if (!name.has_value()) return code;
  if (options.question.empty()) return ChatLoop(run, *name, options).Run();
  return AskOnce(run, ChatSession(*name, options.settings).Request(options.question));
}

void AddChatFlags(CLI::App* command, ChatOptions* options) {
  command->add_option("--system", options->settings.system, "System prompt")->type_name("TEXT");
  command
      ->add_option("--temperature", options->settings.temperature,
                   "Sampling temperature; 0: greedy (default: the model's)")
      ->check(CLI::Range(0.0, 2.0));
  command
      ->add_option("--max-tokens", options->settings.max_tokens,
                   "Maximum number of tokens of an answer (default: all of the context)")
      ->check(CLI::Range(1u, 1'000'000'000u));
  command->add_flag("--no-thinking", options->no_thinking, "Answer without reasoning first");
  command->add_flag("--no-history", options->no_history,
                    "Save no input history (default: ~/.macrame/chat_history)");
}

}  // namespace

void AddRun(CommandTree& tree) {
  CLI::App* command =
      tree.Add(tree.root, "run", "Load a model if needed, then ask it or chat with it");
  auto options = std::make_shared<ChatOptions>();
  command->add_option("model", options->model, "Name of a model, or path of its folder")
      ->required();
  command->add_option("question", options->question,
                      "One question; without it: chat, or read the question from stdin");
  AddChatFlags(command, options.get());
  command
      ->add_option("--timeout", options->timeout,
                   "Time limit of the load: 90s, 10m, 1h (default: 10m)")
      ->check(IsDuration());
  tree.OnChosen(command, [options](const Invocation& run) { return RunChat(run, *options, true); });
}

void AddChat(CommandTree& tree) {
  CLI::App* command = tree.Add(tree.root, "chat", "Chat with a loaded model");
  auto options = std::make_shared<ChatOptions>();
  command->add_option("model", options->model, "Name of a loaded model (default: the only one)");
  AddChatFlags(command, options.get());
  tree.OnChosen(command,
                [options](const Invocation& run) { return RunChat(run, *options, false); });
}

}  // namespace macrame::cli
