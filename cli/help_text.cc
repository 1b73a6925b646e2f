#include "cli/help_text.h"

#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "transport/unix_socket.h"

namespace macrame::cli {
namespace {

struct Examples {
  std::string_view path;
  std::string_view lines;
};

constexpr std::array kExamples = {
    Examples{
        "clusterctl",
        "  clusterctl nodes                              list the machines\n"
        "  clusterctl ls                                 list the models on their disks\n"
        "  clusterctl run NAME                           load a model if needed, and chat\n"
        "  clusterctl model load NAME                    serve it, split over nodes if needed\n"
        "  clusterctl model infer NAME --prompt \"...\"    ask it\n"
        "  clusterctl status                             show nodes, models, problems\n"
        "  clusterctl doctor                             find problems and remedies\n"},
    Examples{"clusterctl devices list",
             "  clusterctl devices list\n"
             "  clusterctl devices list -o json\n"},
    Examples{"clusterctl status",
             "  clusterctl status\n"
             "  clusterctl status --watch\n"},
    Examples{"clusterctl cluster init", "  clusterctl cluster init --name lab\n"},
    Examples{"clusterctl cluster join", "  clusterctl cluster join TOKEN\n"},
    Examples{"clusterctl cluster token", "  clusterctl cluster token\n"},
    Examples{"clusterctl cluster authority",
             "  clusterctl cluster authority > cluster.pem\n"
             "  curl --cacert cluster.pem https://mini-1.local:8080/v1/models\n"},
    Examples{"clusterctl model load",
             "  clusterctl model load qwen3-4b\n"
             "  clusterctl model load ./my-model --name chat --context 8192\n"
             "  clusterctl model load qwen3-4b --ranks 2 --nodes mini-1,mini-2\n"},
    Examples{"clusterctl model unload", "  clusterctl model unload chat\n"},
    Examples{"clusterctl model list", "  clusterctl model list\n"},
    Examples{"clusterctl model import", "  clusterctl model import model-Q4_K_M.gguf\n"},
    Examples{"clusterctl model infer",
             "  clusterctl model infer chat --prompt \"Why is the sky blue?\"\n"
             "  git diff | clusterctl model infer chat --system \"Review this.\"\n"
             "  clusterctl model infer base --raw --prompt \"Once upon a time\"\n"},
    Examples{"clusterctl plan",
             "  clusterctl plan qwen3-4b --ranks 2\n"
             "  clusterctl plan kimi-k2 --cluster cluster.yaml\n"},
    Examples{
        "clusterctl doctor",
        "  clusterctl doctor                 exit code 10: warnings, 11: degraded, 12: errors\n"
        "  clusterctl doctor --explain PORT_DOWN\n"
        "  clusterctl doctor --report report.md\n"},
    Examples{"clusterctl logs",
             "  clusterctl logs -f\n"
             "  clusterctl logs mini-2 -n 500\n"},
    Examples{"clusterctl metrics",
             "  clusterctl metrics\n"
             "  clusterctl metrics --format json | jq '.metrics[].name'\n"},
    Examples{"clusterctl run",
             "  clusterctl run qwen3-4b\n"
             "  clusterctl run qwen3-4b \"Why is the sky blue?\"\n"
             "  git diff | clusterctl run qwen3-4b --system \"Review this.\"\n"},
    Examples{"clusterctl chat",
             "  clusterctl chat\n"
             "  clusterctl chat qwen3-4b --system \"Answer in one sentence.\"\n"
             "  In the conversation: /help, /set temperature 0.5, /clear, /bye\n"},
    Examples{"clusterctl ps", "  clusterctl ps\n"},
    Examples{"clusterctl ls", "  clusterctl ls\n"},
    Examples{"clusterctl nodes",
             "  clusterctl nodes\n"
             "  clusterctl nodes remove mini-2\n"},
    Examples{"clusterctl cordon", "  clusterctl cordon mini-2\n"},
    Examples{"clusterctl drain",
             "  clusterctl drain mini-2\n"
             "  clusterctl drain mini-2 --deadline 10m\n"},
    Examples{"clusterctl uncordon", "  clusterctl uncordon mini-2\n"},
    Examples{"clusterctl cluster health",
             "  clusterctl cluster health\n"
             "  clusterctl cluster health > /dev/null && echo fine\n"},
    Examples{"clusterctl cluster drain", "  clusterctl cluster drain --deadline 5m\n"},
    Examples{"clusterctl cluster stop",
             "  clusterctl cluster stop\n"
             "  clusterctl cluster stop --deadline 5m && clusterctl cluster start\n"},
    Examples{"clusterctl cluster start", "  clusterctl cluster start\n"},
    Examples{"clusterctl events",
             "  clusterctl events --since 1h\n"
             "  clusterctl events -f -o json\n"},
    Examples{"clusterctl top", "  clusterctl top\n"},
    Examples{"clusterctl completion",
             "  source <(clusterctl completion bash)      in ~/.bashrc\n"
             "  source <(clusterctl completion zsh)       in ~/.zshrc, after compinit\n"
             "  clusterctl completion fish > ~/.config/fish/completions/clusterctl.fish\n"},
    Examples{"clusterctl model status",
             "  clusterctl model status\n"
             "  clusterctl model status qwen3-4b --detail\n"},
    Examples{"clusterctl model verify",
             "  clusterctl model verify qwen3-4b\n"
             "  clusterctl model verify qwen3-4b --node mini-2,mini-3\n"},
    Examples{"clusterctl debug bundle", "  clusterctl debug bundle --out bundle.tar.gz\n"},
    Examples{"clusterctl help",
             "  clusterctl help --man | man -l -\n"
             "  clusterctl help --man > /usr/local/share/man/man1/clusterctl.1\n"},
    Examples{"clusterctl key create",
             "  clusterctl key create --name laptop\n"
             "  clusterctl key create --name app --limit 60 --model qwen3-4b --expires 30d\n"
             "  clusterctl key create --name laptop --access-file laptop.access\n"},
    Examples{"clusterctl key list", "  clusterctl key list\n"},
    Examples{"clusterctl key revoke", "  clusterctl key revoke laptop\n"},
    Examples{"clusterctl key rotate", "  clusterctl key rotate 0a1b2c3d4e5f\n"},
    Examples{"clusterctl tenant set",
             "  clusterctl tenant set law --limit 600 --concurrent 8\n"
             "  clusterctl tenant set law --retention 24h --memory-only on\n"},
    Examples{"clusterctl tenant erase", "  clusterctl tenant erase law\n"},
    Examples{"clusterctl audit show", "  clusterctl audit show --since 1d\n"},
    Examples{"clusterctl audit verify", "  clusterctl audit verify\n"},
    Examples{"clusterctl audit export", "  clusterctl audit export > audit.jsonl\n"},
    Examples{"clusterctl nodes label",
             "  clusterctl nodes label mini-2 rack=a\n"
             "  clusterctl nodes label mini-2 rack-\n"
             "  clusterctl model load qwen3-4b --nodes rack=a\n"},
    Examples{"clusterctl nodes dedicate",
             "  clusterctl nodes dedicate mini-2 acme\n"
             "  clusterctl nodes dedicate mini-2 --none\n"},
    Examples{"clusterctl nodes forget", "  clusterctl nodes forget mini-2\n"},
};

struct OtherWord {
  std::string_view word;
  std::string_view command;
};

constexpr std::array kOtherWords = {
    OtherWord{"ask", "clusterctl model infer NAME --prompt \"...\""},
    OtherWord{"infer", "clusterctl model infer NAME --prompt \"...\""},
    OtherWord{"generate", "clusterctl model infer NAME --prompt \"...\""},
    OtherWord{"serve", "clusterctl model load NAME; agentd serves it over HTTP at /v1"},
    OtherWord{"load", "clusterctl model load NAME"},
    OtherWord{"pull",
              "clusterctl model list; models are folders in the model folders, and "
              "clusterctl model import FILE takes a GGUF file"},
    OtherWord{"download", "clusterctl model list; models are folders in the model folders"},
    OtherWord{"import", "clusterctl model import FILE"},
    OtherWord{"rm", "clusterctl model unload NAME"},
    OtherWord{"unload", "clusterctl model unload NAME"},
    OtherWord{"stop", "clusterctl model unload NAME"},
    OtherWord{"list", "clusterctl model list, or clusterctl devices list"},
    OtherWord{"models", "clusterctl model list"},
    OtherWord{"join", "clusterctl cluster join TOKEN"},
    OtherWord{"init", "clusterctl cluster init"},
    OtherWord{"token", "clusterctl cluster token"},
    OtherWord{"health", "clusterctl cluster health, or clusterctl doctor"},
    OtherWord{"evict", "clusterctl drain NODE"},
    OtherWord{"check", "clusterctl doctor, or clusterctl model check NAME"},
};

// "UINT in [1 - 64]" -> "NUMBER [1..64]": CLI11's words for a range. Bounds of a million and more
// only keep typing errors out.
std::string RangeWord(const std::string& check) {
  if (absl::StrContains(check, "e+")) return "NUMBER";
  const size_t at = check.find(" in [");
  return absl::StrCat("NUMBER ", absl::StrReplaceAll(check.substr(at + 4), {{" - ", ".."}}));
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    // A positional argument is named already.
    std::string out = option->get_positional() ? "" : ValueKind(*option);
    if (!out.empty()) out = absl::StrCat(" ", out);
    if (option->get_expected_max() > 1) absl::StrAppend(&out, " ...");
    if (option->get_required()) absl::StrAppend(&out, " (required)");
    return out;
  }
};

}  // namespace

std::string ValueKind(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  const std::string whole = option.get_type_name();  // "TYPE" or "TYPE:CHECK"
  const size_t colon = whole.find(':');
  const std::string type = whole.substr(0, colon);
  const std::string check = colon == std::string::npos ? "" : whole.substr(colon + 1);
  if (absl::StrContains(check, " in [")) return RangeWord(check);
  if (check == "POSITIVE" || check == "NONNEGATIVE") return "NUMBER";
  if (!check.empty()) return check;
  if (type == "UINT" || type == "INT" || type == "FLOAT") return "NUMBER";
  if (type != "TEXT" || option.get_lnames().empty()) return type;
  const std::string& name = option.get_lnames()[0];
  return absl::AsciiStrToUpper(name.substr(name.rfind('-') + 1));
}

std::shared_ptr<CLI::FormatterBase> MakeHelpFormatter() {
  auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(32);
  return formatter;
}

std::string ExamplesOf(std::string_view path) {
  for (const Examples& one : kExamples) {
    if (one.path == path) return std::string(one.lines);
  }
  return "";
}

std::string HelpFooter(std::string_view path) {
  std::string out = ExamplesOf(path);
  if (!out.empty()) out = absl::StrCat("Examples:\n", out);
  if (path == "clusterctl") return out;  // its flags are those of every subcommand
  return absl::StrCat(
      out, out.empty() ? "" : "\n",
      "Flags of every subcommand:\n"
      "  --socket PATH              Path of the agent's socket (MACRAME_SOCKET; default: ",
      transport::DefaultSocketPath(),
      ")\n"
      "  -o, --output FORMAT        table, json or yaml (MACRAME_OUTPUT; default: table)\n"
      "  --json                     Same as -o json\n"
      "  --color WHEN               auto, always or never (default: auto; NO_COLOR, "
      "CLICOLOR_FORCE)\n"
      "  -q, --quiet                Print no progress and no statistics\n");
}

std::string WordOfOtherTools(std::string_view word) {
  for (const OtherWord& known : kOtherWords) {
    if (known.word == word) return std::string(known.command);
  }
  return "";
}

}  // namespace macrame::cli
