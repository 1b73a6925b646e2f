#include "cli/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace macrame::cli {
namespace {

constexpr char kGoesOnPrompt[] = "... ";
constexpr int kRememberedLines = 1000;
// Around what takes no column of the prompt, for libedit.
constexpr char kNoColumns = '\1';
// Terminals put ESC [200~ and ESC [201~ around what is pasted once they are asked to.
constexpr char kMarkPastes[] = "\x1b[?2004h";
constexpr char kMarkNoPastes[] = "\x1b[?2004l";

// Letters beyond ASCII are letters only in a locale that says so. Where the environment names none
// (a container), the system's plain UTF-8.
void UseUtf8() {
  setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0) return;
  for (const char* name : {"C.UTF-8", "en_US.UTF-8", "UTF-8"}) {
    if (setlocale(LC_CTYPE, name) != nullptr) return;
  }
}

// What the file has, if there is one. The caller ends it; null: no memory.
History* ReadHistory(const std::string& file) {
  History* read = history_init();
  if (read == nullptr) return nullptr;
  HistEvent event;
  history(read, &event, H_SETSIZE, kRememberedLines);
  history(read, &event, H_SETUNIQUE, 1);
  if (!file.empty()) history(read, &event, H_LOAD, file.c_str());
  return read;
}

// Read anew, so that what another conversation added stays. The library makes the file its owner's.
void AddToHistoryFile(const std::string& file, const std::string& text) {
  History* all = ReadHistory(file);
  if (all == nullptr) return;
  HistEvent event;
  history(all, &event, H_ENTER, text.c_str());
  history(all, &event, H_SAVE, file.c_str());
  history_end(all);
}

}  // namespace

struct LineEditor::Library {
  explicit Library(LineEditorOptions given) : options(std::move(given)) {
    UseUtf8();
    editor = el_init("clusterctl", options.in, options.out, stderr);
    history = ReadHistory(options.history_file);
    if (editor == nullptr) return;
    el_set(editor, EL_CLIENTDATA, this);
    el_set(editor, EL_PROMPT_ESC, &Prompt, kNoColumns);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_SIGNAL, 1);
    if (history != nullptr) el_set(editor, EL_HIST, ::history, history);
    AddKeys();
  }

  ~Library() {
    if (editor != nullptr) el_end(editor);
    if (history != nullptr) history_end(history);
  }

  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  void AddKeys() {
    el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(editor, nullptr);  // ~/.editrc
    el_set(editor, EL_ADDFN, "macrame-interrupt", "Give the line up", &Interrupt);
    el_set(editor, EL_ADDFN, "macrame-suspend", "Stop the program for a while", &Suspend);
    el_set(editor, EL_ADDFN, "macrame-paste", "What is pasted begins", &BeginPaste);
    el_set(editor, EL_ADDFN, "macrame-pasted", "What is pasted ends", &EndPaste);
    el_set(editor, EL_ADDFN, "macrame-complete", "Complete a command", &Complete);
    // Ctrl-C and Ctrl-Z are keys here. While an answer comes they are signals, for the terminal is
    // as it was.
    el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
    el_set(editor, EL_BIND, "^C", "macrame-interrupt", nullptr);
    el_set(editor, EL_BIND, "^Z", "macrame-suspend", nullptr);
    el_set(editor, EL_BIND, "\\e[200~", "macrame-paste", nullptr);
    el_set(editor, EL_BIND, "\\e[201~", "macrame-pasted", nullptr);
    el_set(editor, EL_BIND, "^I", "macrame-complete", nullptr);
  }

  static Library& Of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<Library*>(self);
  }

  static char* Prompt(EditLine* editor) { return Of(editor).prompt.data(); }

  static unsigned char Interrupt(EditLine* editor, int) {
    Of(editor).is_interrupted = true;
    return CC_NEWLINE;
  }

  // The library's handler gives the terminal back first, and takes it again afterwards.
  static unsigned char Suspend(EditLine*, int) {
    kill(getpid(), SIGTSTP);
    return CC_REDISPLAY;
  }

  static unsigned char BeginPaste(EditLine* editor, int) {
    Of(editor).is_pasting = true;
    return CC_NORM;
  }

  static unsigned char EndPaste(EditLine* editor, int) {
    Of(editor).is_pasting = false;
    return CC_NORM;
  }

  static unsigned char Complete(EditLine* editor, int) {
    const Library& self = Of(editor);
    if (self.is_pasting) return el_insertstr(editor, "\t") == 0 ? CC_REFRESH : CC_ERROR;
    const LineInfo* line = el_line(editor);
    const std::string begun(line->buffer, line->cursor);
    const std::string rest = self.Completed(begun);
    if (rest.empty()) return CC_REFRESH_BEEP;
    return el_insertstr(editor, rest.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  // What is to be added to `begun` as far as all words agree that begin with it.
  std::string Completed(const std::string& begun) const {
    std::optional<std::string> common;
    bool is_only = true;
    for (const std::string& word : options.completions) {
      if (begun.empty() || !absl::StartsWith(word, begun)) continue;
      if (!common.has_value()) {
        common = word;
        continue;
      }
      is_only = false;
      const auto [differs, in_word] =
          std::mismatch(common->begin(), common->end(), word.begin(), word.end());
      static_cast<void>(in_word);
      common->erase(differs, common->end());
    }
    if (!common.has_value()) return "";
    return absl::StrCat(common->substr(begun.size()), is_only ? " " : "");
  }

  // One line of the terminal, with its line break; without one where it was interrupted, or empty
  // where the input is over.
  absl::string_view ReadOne(const std::string& text) {
    prompt = text;
    if (options.use_bold && !text.empty()) {
      // What takes no column belongs to the character behind it: the last one is not bold.
      const std::string mark(1, kNoColumns);
      prompt = absl::StrCat(mark, "\x1b[1m", mark, text.substr(0, text.size() - 1), mark, "\x1b[0m",
                            mark, text.substr(text.size() - 1));
    }
    int length = 0;
    const char* got = el_gets(editor, &length);
    return got == nullptr || length <= 0 ? absl::string_view()
                                         : absl::string_view(got, static_cast<size_t>(length));
  }

  LineEditorOptions options;
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;
  bool is_interrupted = false;
  bool is_pasting = false;
};

LineEditor::LineEditor(LineEditorOptions options)
    : library_(std::make_unique<Library>(std::move(options))) {}

LineEditor::~LineEditor() = default;

LineEditor::Line LineEditor::Read(const std::string& prompt) {
  Library& library = *library_;
  Line line;
  if (library.editor == nullptr) return line;
  library.is_interrupted = library.is_pasting = false;
  std::fputs(kMarkPastes, library.options.out);
  std::fflush(library.options.out);
  do {
    const absl::string_view got = library.ReadOne(line.text.empty() ? prompt : kGoesOnPrompt);
    absl::StrAppend(&line.text, got);
    if (library.is_interrupted) {
      line.end = End::kInterrupted;
      std::fputs("^C\n", library.options.out);
    } else {
      line.end = got.empty() ? End::kInputOver : End::kLine;
    }
  } while (library.is_pasting && line.end == End::kLine);
  std::fputs(kMarkNoPastes, library.options.out);
  std::fflush(library.options.out);
  while (absl::EndsWith(line.text, "\n")) line.text.pop_back();
  return line;
}

void LineEditor::Remember(const std::string& text) {
  Library& library = *library_;
  if (text.empty()) return;
  if (library.history != nullptr) {
    HistEvent event;
    ::history(library.history, &event, H_ENTER, text.c_str());
  }
  const std::string& file = library.options.history_file;
  if (file.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), ignored);
  AddToHistoryFile(file, text);
}

std::string ChatHistoryFile(const std::string& home) {
  return home.empty() ? "" : absl::StrCat(home, "/.macrame/chat_history");
}

}  // namespace macrame::cli
