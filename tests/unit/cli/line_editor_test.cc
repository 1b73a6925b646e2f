#include "cli/line_editor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "tests/unit/fresh_folder.h"

namespace macrame::cli {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kLimit(20);
constexpr char kPasted[] = "\x1b[200~";
constexpr char kPasteEnds[] = "\x1b[201~";

// A terminal: an editor at one end, whoever types at the other.
class Keyboard {
 public:
  Keyboard() {
    setenv("TERM", "xterm", 1);
    unsetenv("EDITRC");
    ours_ = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(ours_);
    unlockpt(ours_);
    const int theirs = open(ptsname(ours_), O_RDWR | O_NOCTTY);
    winsize size{};
    size.ws_row = 24;
    size.ws_col = 80;
    ioctl(ours_, TIOCSWINSZ, &size);
    in_ = fdopen(theirs, "r");
    out_ = fdopen(dup(theirs), "w");
  }
  ~Keyboard() {
    fclose(in_);
    fclose(out_);
    close(ours_);
  }
  Keyboard(const Keyboard&) = delete;
  Keyboard& operator=(const Keyboard&) = delete;

  LineEditorOptions Options(const std::string& history_file = "") const {
    LineEditorOptions options;
    options.history_file = history_file;
    options.completions = {"/clear", "/set", "/system", "/show"};
    options.in = in_;
    options.out = out_;
    return options;
  }

  // What the editor reads while `typed` is typed at its prompt.
  LineEditor::Line Typed(LineEditor& editor, const std::string& typed) {
    shown_.clear();
    auto read = std::async(std::launch::async, [&] { return editor.Read(">>> "); });
    WaitUntilItReads();
    EXPECT_EQ(write(ours_, typed.data(), typed.size()), static_cast<ssize_t>(typed.size()));
    const auto end = steady_clock::now() + kLimit;
    while (read.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
      Show();
      if (steady_clock::now() < end) continue;
      ADD_FAILURE() << "no line came; shown was " << shown_;
      std::abort();
    }
    Show();
    return read.get();
  }

  const std::string& shown() const { return shown_; }

 private:
  void Show() {
    pollfd one{ours_, POLLIN, 0};
    char bytes[4096];
    while (poll(&one, 1, 0) > 0 && (one.revents & POLLIN) != 0) {
      const ssize_t got = read(ours_, bytes, sizeof(bytes));
      if (got <= 0) return;
      shown_.append(bytes, static_cast<size_t>(got));
    }
  }
  // What is typed before the editor reads is edited by the system's terminal instead.
  void WaitUntilItReads() {
    const auto end = steady_clock::now() + kLimit;
    termios settings{};
    do {
      ASSERT_LT(steady_clock::now(), end) << "nobody reads the terminal; shown was " << shown_;
      std::this_thread::yield();
      ASSERT_EQ(tcgetattr(ours_, &settings), 0);
    } while ((settings.c_lflag & ICANON) != 0);
  }

  int ours_ = -1;
  FILE* in_ = nullptr;
  FILE* out_ = nullptr;
  std::string shown_;
};

class LineEditorTest : public testing::Test {
 protected:
  // Nobody's ~/.editrc.
  LineEditorTest() { setenv("HOME", folder_.c_str(), 1); }

  const std::string folder_ = FreshFolder();
  Keyboard keyboard_;
};

TEST_F(LineEditorTest, ALineIsEditedBeforeItIsSent) {
  LineEditor editor(keyboard_.Options());
  EXPECT_EQ(keyboard_.Typed(editor, "plain\r").text, "plain");
  // Left twice, a letter, to the beginning, a letter, to the end, one letter less.
  EXPECT_EQ(keyboard_.Typed(editor, "helo\x1b[D\x1b[Dx\x01y\x05\x7f\r").text, "yhexl");
  EXPECT_EQ(keyboard_.Typed(editor, "one two\x17three\r").text, "one three");
}

TEST_F(LineEditorTest, LettersOfAllScriptsAreOneEach) {
  LineEditor editor(keyboard_.Options());
  EXPECT_EQ(keyboard_.Typed(editor, "Grüße 你好\x7f\r").text, "Grüße 你");
  EXPECT_EQ(keyboard_.Typed(editor, "naïve 👍\r").text, "naïve 👍");
}

TEST_F(LineEditorTest, WhatWasTypedComesBack) {
  const std::string file = folder_ + "/.macrame/chat_history";
  {
    LineEditor editor(keyboard_.Options(file));
    editor.Remember("Why is the sky blue?");
    editor.Remember("And the sea?");
    EXPECT_EQ(keyboard_.Typed(editor, "\x1b[A\r").text, "And the sea?");
    EXPECT_EQ(keyboard_.Typed(editor, "\x1b[A\x1b[A\r").text, "Why is the sky blue?");
  }
  LineEditor later(keyboard_.Options(file));
  EXPECT_EQ(keyboard_.Typed(later, "\x1b[A!\r").text, "And the sea?!");
  EXPECT_EQ(keyboard_.Typed(later, "\x12sky\r\r").text, "Why is the sky blue?");
  struct stat of {};
  ASSERT_EQ(stat(file.c_str(), &of), 0);
  EXPECT_EQ(of.st_mode & 0777, 0600u);
}

TEST_F(LineEditorTest, TwoConversationsKeepEachOthersLines) {
  const std::string file = folder_ + "/history";
  LineEditor one(keyboard_.Options(file)), other(keyboard_.Options(file));
  one.Remember("from one");
  other.Remember("from the other");
  LineEditor later(keyboard_.Options(file));
  EXPECT_EQ(keyboard_.Typed(later, "\x1b[A\r").text, "from the other");
  EXPECT_EQ(keyboard_.Typed(later, "\x1b[A\x1b[A\r").text, "from one");
}

TEST_F(LineEditorTest, NoFileIsKeptWithoutAName) {
  LineEditor editor(keyboard_.Options());
  editor.Remember("a secret");
  EXPECT_EQ(keyboard_.Typed(editor, "\x1b[A\r").text, "a secret");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(LineEditorTest, AHistoryThatCannotBeReadOrWrittenCostsNothingElse) {
  const std::string file = folder_ + "/history";
  std::ofstream(file) << "not a history\n\x01\x02";
  LineEditor broken(keyboard_.Options(file));
  EXPECT_EQ(keyboard_.Typed(broken, "a question\r").text, "a question");
  LineEditor nowhere(keyboard_.Options("/proc/none/history"));
  nowhere.Remember("a question");
  EXPECT_EQ(keyboard_.Typed(nowhere, "\x1b[A\r").text, "a question");
}

TEST_F(LineEditorTest, WhatIsPastedIsOneLine) {
  LineEditor editor(keyboard_.Options());
  const std::string pasted = std::string(kPasted) + "def f():\r\treturn 1\r\rf()" + kPasteEnds;
  EXPECT_EQ(keyboard_.Typed(editor, "Explain: " + pasted + " please\r").text,
            "Explain: def f():\n\treturn 1\n\nf() please");
  // A text that ends with a line break still waits for Enter.
  EXPECT_EQ(keyboard_.Typed(editor, std::string(kPasted) + "a\rb\r" + kPasteEnds + "\r").text,
            "a\nb");
  std::string lines, expected;
  for (int i = 0; i < 300; ++i) {
    lines += "line " + std::to_string(i) + "\r";
    expected += (i > 0 ? "\n" : "") + ("line " + std::to_string(i));
  }
  EXPECT_EQ(keyboard_.Typed(editor, kPasted + lines + kPasteEnds + "\r").text, expected);
  // A pasted question comes back whole.
  editor.Remember("a\nb");
  EXPECT_EQ(keyboard_.Typed(editor, "\x1b[A\r").text, "a\nb");
}

TEST_F(LineEditorTest, CtrlCGivesTheLineUp) {
  LineEditor editor(keyboard_.Options());
  LineEditor::Line line = keyboard_.Typed(editor, "half a quest\x03");
  EXPECT_EQ(line.end, LineEditor::End::kInterrupted);
  EXPECT_EQ(line.text, "half a quest");
  line = keyboard_.Typed(editor, "\x03");
  EXPECT_EQ(line.end, LineEditor::End::kInterrupted);
  EXPECT_EQ(line.text, "");
  line = keyboard_.Typed(editor, "whole\r");
  EXPECT_EQ(line.end, LineEditor::End::kLine);
  EXPECT_EQ(line.text, "whole");
}

TEST_F(LineEditorTest, CtrlDOnAnEmptyLineEndsTheInput) {
  LineEditor editor(keyboard_.Options());
  EXPECT_EQ(keyboard_.Typed(editor, "\x04").end, LineEditor::End::kInputOver);
  EXPECT_EQ(keyboard_.Typed(editor, "\r").end, LineEditor::End::kLine);
}

TEST_F(LineEditorTest, TabCompletesCommands) {
  LineEditor editor(keyboard_.Options());
  EXPECT_EQ(keyboard_.Typed(editor, "/c\t\r").text, "/clear ");
  EXPECT_EQ(keyboard_.Typed(editor, "/se\tseed 4\r").text, "/set seed 4");
  EXPECT_EQ(keyboard_.Typed(editor, "/s\ty\tBe short\r").text, "/system Be short");
  EXPECT_EQ(keyboard_.Typed(editor, "word\t\r").text, "word");
}

TEST(ChatHistoryFile, StandsInTheHomeFolder) {
  EXPECT_EQ(ChatHistoryFile("/home/ada"), "/home/ada/.macrame/chat_history");
  EXPECT_EQ(ChatHistoryFile(""), "");
}

}  // namespace
}  // namespace macrame::cli
