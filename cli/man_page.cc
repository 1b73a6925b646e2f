#include "cli/man_page.h"

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/command.h"
#include "cli/help_text.h"

namespace macrame::cli {
namespace {

// Nothing of a text is taken for a request or an escape.
std::string Roff(const std::string& text) {
  std::string out;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, ".") || absl::StartsWith(line, "'")) out += "\\&";
    absl::StrAppend(&out, absl::StrReplaceAll(line, {{"\\", "\\e"}, {"-", "\\-"}}), "\n");
  }
  out.pop_back();
  return out;
}

std::string FlagLine(const CLI::Option& option) {
  std::string names;
  for (const std::string& name : option.get_snames()) {
    absl::StrAppend(&names, names.empty() ? "-" : ", -", name);
  }
  for (const std::string& name : option.get_lnames()) {
    absl::StrAppend(&names, names.empty() ? "--" : ", --", name);
  }
  if (option.get_expected_min() > 0) absl::StrAppend(&names, " ", ValueKind(option));
  return absl::StrCat(".TP\n\\fB", Roff(names), "\\fR\n", Roff(option.get_description()), "\n");
}

std::string PositionalWords(const CLI::App& app) {
  std::string words;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = Roff(option->get_name());
    absl::StrAppend(&words, option->get_required() ? " \\fI" : " [\\fI", name,
                    option->get_required() ? "\\fR" : "\\fR]");
  }
  return words;
}

void AppendCommand(const CLI::App& app, const std::string& path, std::string* out) {
  if (app.get_group().empty()) return;
  const auto below = app.get_subcommands([](const CLI::App*) { return true; });
  if (below.empty() || app.get_require_subcommand_min() == 0) {
    absl::StrAppend(out, ".SS ", Roff(path), PositionalWords(app), "\n",
                    Roff(app.get_description()), ".\n");
    for (const CLI::Option* option : app.get_options()) {
      const bool is_flag = !option->get_lnames().empty() || !option->get_snames().empty();
      if (is_flag && option->get_lnames() != std::vector<std::string>{"help"}) {
        *out += FlagLine(*option);
      }
    }
    const std::string examples = ExamplesOf(absl::StrCat("clusterctl ", path));
    if (!examples.empty()) absl::StrAppend(out, ".PP\n.EX\n", Roff(examples), "\n.EE\n");
  }
  for (const CLI::App* sub : below) AppendCommand(*sub, path + " " + sub->get_name(), out);
}

}  // namespace

std::string ManPage(const CLI::App& root, const std::string& version) {
  std::string out =
      absl::StrCat(".TH CLUSTERCTL 1 \"\" \"Macrame ", Roff(version), "\"\n",
                   ".ad l\n.nh\n.SH NAME\nclusterctl \\- ", Roff(root.get_description()),
                   "\n.SH SYNOPSIS\n.B clusterctl\n.I COMMAND\n[\\fIFLAG\\fR ...]\n",
                   ".SH EXAMPLES\n.EX\n", Roff(ExamplesOf("clusterctl")), "\n.EE\n.SH COMMANDS\n");
  for (const CLI::App* sub : root.get_subcommands([](const CLI::App*) { return true; })) {
    AppendCommand(*sub, sub->get_name(), &out);
  }
  absl::StrAppend(&out, ".SH \"FLAGS OF EVERY COMMAND\"\n");
  for (const CLI::Option* option : root.get_options()) out += FlagLine(*option);
  absl::StrAppend(&out, ".SH \"EXIT STATUS\"\n.EX\n", Roff(ExitCodesText()), ".EE\n");
  return out;
}

void AddHelp(CommandTree& tree) {
  CLI::App* command = tree.Add(tree.root, "help", "Print this help, or the manual page with --man");
  auto man = std::make_shared<bool>(false);
  command->add_flag("--man", *man, "Print the manual page clusterctl(1)");
  tree.OnChosen(command, [man, root = tree.root](const Invocation& run) {
    *run.environment.out << (*man ? ManPage(*root, ClientVersion())
                                  : root->get_formatter()->make_help(root, root->get_name(),
                                                                     CLI::AppFormatMode::Normal));
    return kExitOk;
  });
}

}  // namespace macrame::cli
