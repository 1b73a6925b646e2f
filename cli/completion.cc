// Completion for shells: the scripts, and the hidden `__complete` that they ask.

#include "cli/completion.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/command.h"

namespace macrame::cli {
namespace {

// Nobody waits longer than this at a prompt.
constexpr std::chrono::milliseconds kNamesLimit{1000};

struct LivePlace {
  std::string_view path;
  LiveNames names;
  bool many = false;  // each further word is one, too
};

constexpr std::array kLivePlaces = {
    LivePlace{"run", LiveNames::kModels},
    LivePlace{"plan", LiveNames::kModels},
    LivePlace{"model load", LiveNames::kModels},
    LivePlace{"model check", LiveNames::kModels},
    LivePlace{"model verify", LiveNames::kModels},
    LivePlace{"model profile", LiveNames::kModels},
    LivePlace{"chat", LiveNames::kServed},
    LivePlace{"bench", LiveNames::kServed},
    LivePlace{"trace", LiveNames::kServed},
    LivePlace{"model infer", LiveNames::kServed},
    LivePlace{"model stats", LiveNames::kServed},
    LivePlace{"model status", LiveNames::kServed},
    LivePlace{"model unload", LiveNames::kServed},
    LivePlace{"verify transport", LiveNames::kServed},
    LivePlace{"cordon", LiveNames::kNodes},
    LivePlace{"drain", LiveNames::kNodes},
    LivePlace{"uncordon", LiveNames::kCordoned},
    LivePlace{"logs", LiveNames::kNodes},
    LivePlace{"links", LiveNames::kNodes},
    LivePlace{"links recheck", LiveNames::kNodes, true},
    LivePlace{"links bench", LiveNames::kNodes, true},
    LivePlace{"doctor", LiveNames::kNodes, true},
    LivePlace{"rdma guide", LiveNames::kNodes},
    LivePlace{"nodes forget", LiveNames::kNodes},
    LivePlace{"nodes label", LiveNames::kNodes},
    LivePlace{"nodes dedicate", LiveNames::kNodes},
    LivePlace{"nodes remove", LiveNames::kNodes},
    LivePlace{"nodes revoke", LiveNames::kNodes},
    LivePlace{"--nodes", LiveNames::kNodes},
    LivePlace{"--exclude", LiveNames::kNodes},
    LivePlace{"--draft-model", LiveNames::kModels},
};

struct FixedPlace {
  std::string_view path;
  std::string_view words;  // with spaces between
};

// Options whose values are checked against a list.
constexpr std::array kFixedPlaces = {
    FixedPlace{"--output", "table json yaml"},
    FixedPlace{"--color", "auto always never"},
    FixedPlace{"--parallelism", "auto tensor pipeline"},
    FixedPlace{"--transport", "auto jaccl verbs ring"},
    FixedPlace{"--optimize", "latency throughput memory"},
    FixedPlace{"--strictness", "safe normal tight"},
    FixedPlace{"completion", "bash zsh fish"},
};

void OfferFixed(std::string_view path, std::string_view begun, Candidates* candidates) {
  for (const FixedPlace& place : kFixedPlaces) {
    if (place.path != path) continue;
    std::string_view rest = place.words;
    while (!rest.empty()) {
      const std::string_view word = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), word.size() + 1));
      if (word.starts_with(begun)) candidates->words.push_back({std::string(word), ""});
    }
  }
}

void OfferLive(std::string_view path, int positional, Candidates* candidates) {
  for (const LivePlace& place : kLivePlaces) {
    if (place.path == path && (positional == 0 || place.many)) candidates->live = place.names;
  }
}

// "--nodes" for an option that is also "-n"; its only name where it has no long one.
std::string LongName(const CLI::Option& option) {
  const std::vector<std::string>& names = option.get_lnames();
  if (!names.empty()) return "--" + names.back();
  return option.get_snames().empty() ? "" : "-" + option.get_snames().front();
}

void OfferFlags(CLI::App& app, std::string_view begun, Candidates* candidates) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = LongName(*option);
    if (name.empty() || !name.starts_with(begun)) continue;
    candidates->words.push_back({name, option->get_description()});
  }
}

void OfferSubcommands(CLI::App& app, std::string_view begun, Candidates* candidates) {
  for (const CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; })) {
    const bool is_hidden = sub->get_group().empty();
    if (is_hidden || !sub->get_name().starts_with(begun)) continue;
    candidates->words.push_back({sub->get_name(), sub->get_description()});
  }
}

// Where the words that are complete lead.
struct Place {
  CLI::App* app = nullptr;
  std::string path;
  int positionals = 0;
  const CLI::Option* awaits = nullptr;  // an option whose value comes next
};

Place FindPlace(CLI::App& root, const std::vector<std::string>& words) {
  Place place{&root, "", 0, nullptr};
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    // bash takes "--flag=value" apart into three words.
    if (place.awaits != nullptr && word == "=") continue;
    if (std::exchange(place.awaits, nullptr) != nullptr) continue;
    if (word.size() > 1 && word[0] == '-') {
      const CLI::Option* option = place.app->get_option_no_throw(word);
      if (option == nullptr) option = root.get_option_no_throw(word);
      if (option != nullptr && option->get_expected_min() > 0) place.awaits = option;
      continue;
    }
    const auto below =
        place.app->get_subcommands([&](CLI::App* sub) { return sub->get_name() == word; });
    if (below.empty() || place.positionals > 0) {
      ++place.positionals;
      continue;
    }
    place.app = below[0];
    absl::StrAppend(&place.path, place.path.empty() ? "" : " ", word);
  }
  return place;
}

// Asks, and gives up after kNamesLimit.
class QuickClient {
 public:
  explicit QuickClient(const AgentPlace& agent)
      : client_(agent), timer_([this] {
          std::unique_lock lock(mutex_);
          if (!over_.wait_for(lock, kNamesLimit, [this] { return is_over_; })) client_.Cancel();
        }) {}
  ~QuickClient() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_all();
    timer_.join();
  }
  AgentClient& operator*() { return client_; }

 private:
  AgentClient client_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread timer_;
};

std::vector<Candidate> AskNames(LiveNames live, const AgentPlace& agent) {
  std::vector<Candidate> names;
  if (live == LiveNames::kNone) return names;
  QuickClient client(agent);
  if (live == LiveNames::kModels) {
    const auto models = (*client).ListModels();
    if (!models.ok()) return names;
    for (const v1::ModelEntry& model : models->models()) {
      names.push_back({model.name(), GiB(model.size_bytes())});
    }
    return names;
  }
  const auto status = (*client).GetStatus();
  if (!status.ok()) return names;
  if (live == LiveNames::kServed) {
    for (const v1::DeploymentStatus& one : status->deployments()) {
      names.push_back({one.deployment().name(), "loaded"});
    }
    return names;
  }
  for (const v1::NodeStatus& node : status->nodes()) {
    if (live == LiveNames::kCordoned && !node.has_cordon()) continue;
    names.push_back({node.identity().hostname(), node.has_cordon() ? "cordoned" : ""});
  }
  return names;
}

int RunComplete(const Invocation& run, CLI::App& root, const std::vector<std::string>& marked) {
  // Each word has a ':' before it, so that none is taken for a flag of this command.
  std::vector<std::string> words;
  for (const std::string& word : marked) words.push_back(word.substr(word.empty() ? 0 : 1));
  Candidates candidates = CandidatesFor(root, words);
  const std::string begun = words.empty() ? "" : words.back();
  for (Candidate& name : AskNames(candidates.live, run.options.agent)) {
    name.word = candidates.prefix + name.word;
    if (absl::StartsWith(name.word, begun)) candidates.words.push_back(std::move(name));
  }
  for (const Candidate& one : candidates.words) {
    *run.environment.out << Printable(one.word);
    if (!one.description.empty()) *run.environment.out << "\t" << Printable(one.description);
    *run.environment.out << "\n";
  }
  return kExitOk;
}

constexpr char kBash[] = R"(# bash completion of clusterctl: source <(clusterctl completion bash)
_clusterctl() {
  local i line
  local -a words
  words=()
  for ((i = 1; i <= COMP_CWORD; i++)); do
    words+=(":${COMP_WORDS[i]}")
  done
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("${line%%$'\t'*}")
  done < <("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null)
}
complete -o default -F _clusterctl clusterctl
)";

constexpr char kZsh[] = R"(#compdef clusterctl
# zsh completion of clusterctl: source <(clusterctl completion zsh), after compinit
_clusterctl() {
  local i line
  local -a typed names
  for ((i = 2; i <= CURRENT; i++)); do
    typed+=(":${words[i]}")
  done
  while IFS= read -r line; do
    names+=("${line%%$'\t'*}")
  done < <("${words[1]}" __complete "${typed[@]}" 2>/dev/null)
  if ((${#names})); then
    compadd -- "${names[@]}"
  else
    _files
  fi
}
compdef _clusterctl clusterctl
)";

constexpr char kFish[] = R"(# fish completion of clusterctl: clusterctl completion fish | source
function __clusterctl_complete
  set -l typed (commandline -opc)
  set -l current (commandline -ct)
  set -l found ($typed[1] __complete ':'$typed[2..-1] ":$current" 2>/dev/null)
  if test (count $found) -gt 0
    printf '%s\n' $found
  else
    __fish_complete_path "$current"
  end
end
complete -c clusterctl -f -a '(__clusterctl_complete)'
)";

}  // namespace

Candidates CandidatesFor(CLI::App& root, const std::vector<std::string>& words) {
  Candidates candidates;
  const Place place = FindPlace(root, words);
  const std::string begun = words.empty() ? "" : words.back();
  if (place.awaits != nullptr) {
    const std::string name = LongName(*place.awaits);
    OfferFixed(name, begun, &candidates);
    OfferLive(name, 0, &candidates);
    const size_t comma = begun.rfind(',');
    if (comma != std::string::npos) candidates.prefix = begun.substr(0, comma + 1);
    return candidates;
  }
  if (!begun.empty() && begun[0] == '-') {
    OfferFlags(*place.app, begun, &candidates);
    if (place.app != &root) OfferFlags(root, begun, &candidates);
    return candidates;
  }
  if (place.positionals == 0) OfferSubcommands(*place.app, begun, &candidates);
  if (place.positionals == 0) OfferFixed(place.path, begun, &candidates);
  OfferLive(place.path, place.positionals, &candidates);
  return candidates;
}

std::string CompletionScript(std::string_view shell) {
  return shell == "bash" ? kBash : shell == "zsh" ? kZsh : shell == "fish" ? kFish : "";
}

void AddCompletion(CommandTree& tree) {
  CLI::App* command = tree.Add(tree.root, "completion",
                               "Print the script that completes commands and names in a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "Shell to complete in: bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  tree.OnChosen(command, [shell](const Invocation& run) {
    *run.environment.out << CompletionScript(*shell);
    return kExitOk;
  });
  CLI::App* asked = tree.Add(tree.root, "__complete", "Complete a command line");
  asked->group("");
  auto words = std::make_shared<std::vector<std::string>>();
  asked->add_option("words", *words)->expected(0, -1);
  tree.OnChosen(asked, [words, root = tree.root](const Invocation& run) {
    return RunComplete(run, *root, *words);
  });
}

}  // namespace macrame::cli
