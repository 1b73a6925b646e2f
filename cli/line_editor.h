#pragma once

// A line of a conversation as it is typed at a terminal: edited, completed, found again among
// former ones. By libedit, which every Mac has.

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace macrame::cli {

struct LineEditorOptions {
  // Where what was typed is kept, for its owner alone (mode 0600); empty: nowhere. Its folder is
  // made if need be. A file that can't be read or written costs the history, nothing else.
  std::string history_file;
  // What Tab completes at the beginning of a line.
  std::vector<std::string> completions;
  bool use_bold = true;
  FILE* in = stdin;
  FILE* out = stdout;
};

// Used by one thread. What ~/.editrc says of keys (vi's, say) holds. A text that is pasted is one
// line, line breaks included; it is sent by the Enter that is typed behind it.
class LineEditor {
 public:
  explicit LineEditor(LineEditorOptions options);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class End {
    kLine,         // Enter
    kInterrupted,  // Ctrl-C; `text` is what stood there
    kInputOver,    // Ctrl-D on an empty line, or the terminal is gone
  };
  struct Line {
    End end = End::kInputOver;
    std::string text;  // without the line break
  };
  // Waits for a line behind `prompt`. While it waits the terminal is in a mode of its own; SIGTERM,
  // SIGHUP and SIGTSTP give it back first.
  Line Read(const std::string& prompt);
  // Keeps a text for the next times, unless it was the last one too.
  void Remember(const std::string& text);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

// "~/.macrame/chat_history"; empty without a home folder.
std::string ChatHistoryFile(const std::string& home);

}  // namespace macrame::cli
