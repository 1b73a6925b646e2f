// The repository keeps itself tidy: folder arrows, widths, lengths, bans and READMEs are rules
// here. Each failure names the file, the line and what to do instead.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "proto/reasons.h"
#include "tests/tidy/cpp_outline.h"
#include "tests/tidy/dead_declarations.h"
#include "tests/tidy/source_tree.h"

namespace macrame::tests {
namespace {

constexpr size_t kLineWidthMax = 100;
constexpr size_t kFileLinesMax = 800;
constexpr size_t kFunctionLinesMax = 70;
constexpr size_t kComplexityMax = 20;

const std::vector<SourceFile>& Tree() {
  static const std::vector<SourceFile> tree = ReadSourceTree();
  return tree;
}

std::string Where(const SourceFile& file, size_t index) {
  return file.path + ":" + std::to_string(index + 1);
}

// What `pattern` has in its first parentheses, wherever it is found.
std::vector<std::string> Matches(const SourceFile& file, const std::regex& pattern) {
  std::vector<std::string> found;
  for (const std::string& line : file.lines) {
    for (std::sregex_iterator at(line.begin(), line.end(), pattern), end; at != end; ++at) {
      found.push_back((*at)[1].str());
    }
  }
  return found;
}

// Which folders a folder may include from; its own is always allowed.
const std::map<std::string, std::set<std::string>>& AllowedArrows() {
  static const std::map<std::string, std::set<std::string>> arrows = {
      {"proto", {}},
      {"planner", {"proto"}},
      {"transport", {"proto"}},
      {"discovery", {"proto", "transport"}},
      {"runtime", {"proto", "transport"}},
      {"agentd", {"proto", "transport", "discovery", "planner", "runtime"}},
      {"cli", {"proto", "transport"}},
  };
  return arrows;
}

TEST(Tidy, IncludesFollowTheFolderArrows) {
  static const std::regex include(R"(^\s*#\s*include\s+"([^"]+)\")");
  size_t seen = 0;
  for (const SourceFile& file : Tree()) {
    const auto allowed = AllowedArrows().find(TopFolder(file.path));
    if (!IsCpp(file) || allowed == AllowedArrows().end()) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      std::smatch match;
      if (!std::regex_search(file.lines[i], match, include)) continue;
      const std::string target = TopFolder(match[1].str());
      if (!AllowedArrows().contains(target)) continue;  // a library's header
      ++seen;
      EXPECT_TRUE(target == TopFolder(file.path) || allowed->second.contains(target))
          << Where(file, i) << ": " << TopFolder(file.path) << " may not include " << match[1]
          << "; what passes between folders that don't know each other is a message of proto";
    }
  }
  EXPECT_GT(seen, 50u);
}

// Of a folder that is divided in rooms, which of its rooms a room may include from; "" are the
// files beside the rooms.
struct Rooms {
  std::string folder;
  std::map<std::string, std::set<std::string>> arrows;
};

const std::vector<Rooms>& AllRooms() {
  static const std::set<std::string> all = {"base",    "config",   "cores",   "dashboard",
                                            "gateway", "node",     "state",   "links",
                                            "gangs",   "services", "metrics", "tracing"};
  static const std::vector<Rooms> rooms = {
      {"agentd",
       {{"", all},
        {"services",
         {"base", "cores", "gateway", "node", "state", "links", "gangs", "metrics", "tracing"}},
        {"gangs", {"base", "cores", "node", "state", "links"}},
        {"links", {"base", "cores", "node", "state"}},
        {"state", {"base", "cores", "node"}},
        {"node", {"base", "cores"}},
        {"gateway", {"base", "dashboard", "tracing"}},
        {"dashboard", {"base"}},
        {"metrics", {}},
        {"tracing", {}},
        {"config", {"base"}},
        {"cores", {}},
        {"base", {}}}},
      {"agentd/gateway",
       {{"", {"base", "access", "http", "endpoints"}},
        {"endpoints", {"base", "fields", "dialects", "access", "http", "generation"}},
        {"generation", {"base", "fields", "dialects", "access", "http"}},
        {"http", {"base", "dialects", "access"}},
        {"access", {"base"}},
        {"dialects", {"base", "fields"}},
        {"fields", {"base"}},
        {"base", {}}}},
      {"discovery",
       {{"beacons", {"base"}},
        {"membership", {"base"}},
        {"parsers", {"base"}},
        {"probe", {"base", "parsers"}},
        {"base", {}}}},
      {"cli", {{"", {"format", "service"}}, {"format", {}}, {"service", {}}}},
      {"planner", {{"", {}}, {"offline", {""}}}},
      {"transport",
       {{"", {}},
        {"gang", {""}},
        {"collectives", {"", "gang"}},
        {"mlx_group", {"collectives"}},
        {"verbs", {"collectives"}},
        {"links", {}}}},
      {"runtime",
       {{"process",
         {"gang", "gguf", "kernels", "model", "model_files", "second_engine", "serving", "text",
          "watch"}},
        {"serving", {"gang", "kernels", "model", "text", "watch"}},
        {"watch", {"gang", "model"}},
        {"gang", {"model"}},
        {"gguf", {"model", "model_files", "text"}},
        {"model_files", {"model", "second_engine", "text"}},
        {"second_engine", {"model"}},
        {"model", {"kernels", "text"}},
        {"supervisor", {"diagnosis", "process"}},
        {"diagnosis", {}},
        {"kernels", {}},
        {"text", {}}}},
      {"runtime/serving",
       {{"", {"cache", "cold", "markup", "sampling", "structure"}},
        {"cold", {"cache"}},
        {"cache", {}},
        {"structure", {"markup", "sampling"}},
        {"sampling", {"markup"}},
        {"markup", {}}}},
      {"runtime/model",
       {{"", {"config", "families", "weights", "cuts", "step", "cpu", "mlx"}},
        {"mlx", {"config", "weights", "cuts", "step"}},
        {"cpu", {"config", "weights", "cuts", "step"}},
        {"step", {}},
        {"families", {"config", "weights"}},
        {"weights", {"config", "cuts"}},
        {"cuts", {"config"}},
        {"config", {}}}},
  };
  return rooms;
}

// "node" of "agentd/node/own_node.h" in "agentd"; nothing of a file that is not there.
std::optional<std::string> RoomOf(const std::string& path, const std::string& folder) {
  if (path.compare(0, folder.size() + 1, folder + "/") != 0) return std::nullopt;
  const size_t begin = folder.size() + 1, end = path.find('/', begin);
  return end == std::string::npos ? "" : path.substr(begin, end - begin);
}

TEST(Tidy, IncludesFollowTheRoomArrows) {
  static const std::regex include(R"(^\s*#\s*include\s+"([^"]+)\")");
  for (const Rooms& rooms : AllRooms()) {
    size_t seen = 0;
    for (const SourceFile& file : Tree()) {
      const std::optional<std::string> room = RoomOf(file.path, rooms.folder);
      if (!IsCpp(file) || !room.has_value()) continue;
      const auto allowed = rooms.arrows.find(*room);
      ASSERT_NE(allowed, rooms.arrows.end()) << file.path << " is in a room without arrows";
      for (const std::string& target : Matches(file, include)) {
        const std::optional<std::string> other = RoomOf(target, rooms.folder);
        if (!other.has_value()) continue;
        ++seen;
        EXPECT_TRUE(other == room || allowed->second.contains(*other))
            << file.path << ": " << rooms.folder << "/" << *room << " may not include " << target;
      }
    }
    EXPECT_GT(seen, 20u) << rooms.folder;
  }
}

TEST(Tidy, NoTwoRoomsMayIncludeEachOther) {
  for (const Rooms& rooms : AllRooms()) {
    for (const auto& [room, targets] : rooms.arrows) {
      for (const std::string& target : targets) {
        EXPECT_FALSE(rooms.arrows.at(target).contains(room))
            << rooms.folder << "/" << room << " and " << rooms.folder << "/" << target;
      }
    }
  }
}

TEST(Tidy, TheMapNamesEachRoom) {
  std::set<std::string> rooms, named;
  for (const SourceFile& file : Tree()) {
    if (IsCpp(file) && AllowedArrows().contains(TopFolder(file.path))) {
      rooms.insert(file.path.substr(0, file.path.rfind('/')));
    }
    if (file.path != "ARCHITECTURE.md") continue;
    for (std::string& room : Matches(file, std::regex(R"re(^\| `([a-z_0-9/]+)` \|)re"))) {
      named.insert(std::move(room));
    }
  }
  ASSERT_GT(rooms.size(), 30u);
  for (const std::string& room : rooms) {
    EXPECT_TRUE(named.contains(room)) << room << " has no line in ARCHITECTURE.md's map";
  }
}

TEST(Tidy, TestsAndDeployAreIncludedByNobody) {
  for (const SourceFile& file : Tree()) {
    if (!IsCpp(file) || IsUnder(file, "tests")) continue;
    // But for headers of systems that programs are linked for and that have none here.
    if (!IsUnder(file, "deploy/macos/stubs")) {
      EXPECT_NE(TopFolder(file.path), "deploy") << file.path << ": deploy holds no C++";
    }
    for (size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_EQ(file.lines[i].find("#include \"tests/"), std::string::npos) << Where(file, i);
    }
  }
}

// A code that is mistyped does not compile, since code names it by its constant.
TEST(Tidy, ReasonCodesAreWrittenOnce) {
  static const std::regex quoted(R"re("([A-Z][A-Z0-9_]{2,})")re");
  static const std::regex raised(
      R"re((?:MakeReason|ReasonStatus)\([^";}]*"([A-Z][A-Z0-9_]{2,})")re");
  for (const SourceFile& file : Tree()) {
    if (!IsCpp(file) || IsUnder(file, "tests") || file.path == "proto/reason_codes.h") continue;
    for (const std::string& word : Matches(file, quoted)) {
      EXPECT_EQ(FindReasonCode(word), nullptr)
          << file.path << ": \"" << word << "\" has a constant in proto/reason_codes.h";
    }
    std::string text;
    for (const std::string& line : file.lines) text += line + "\n";
    for (const std::string& code : Matches({file.path, {text}}, raised)) {
      ADD_FAILURE() << file.path << ": " << code << " needs a constant in proto/reason_codes.h";
    }
  }
}

TEST(Tidy, ReasonCodesAreListedAndRaised) {
  static const std::regex named(R"re(\breasons::(k\w+))re");
  std::map<std::string, std::string> codes;  // by constant
  std::set<std::string> raised;
  for (const SourceFile& file : Tree()) {
    if (!IsCpp(file) || IsUnder(file, "tests")) continue;
    if (file.path == "proto/reason_codes.h") {
      for (const std::string& line : file.lines) {
        const size_t begin = line.find(" k"), end = line.find("[] = \"");
        if (end == std::string::npos) continue;
        codes[line.substr(begin + 1, end - begin - 1)] =
            line.substr(end + 6, line.rfind('"') - end - 6);
      }
    } else if (file.path != "proto/reasons.cc") {
      for (const std::string& constant : Matches(file, named)) raised.insert(constant);
    }
  }
  EXPECT_EQ(codes.size(), AllReasonCodes().size());
  EXPECT_GT(codes.size(), 100u);
  for (const auto& [constant, code] : codes) {
    EXPECT_NE(FindReasonCode(code), nullptr) << code << " is not listed in proto/reasons.cc";
    EXPECT_TRUE(raised.contains(constant)) << code << " is a reason that nothing raises";
  }
}

// A backend that is mistyped does not compile, since code names it by its type.
TEST(Tidy, BackendsAndTopologiesAreWrittenOnce) {
  static const std::regex quoted(R"re("([a-z-]+)")re");
  const std::set<std::string> names = {"ring",      "verbs",      "jaccl",
                                       "mesh",      "jaccl-ring", "jaccl-mesh",
                                       "ring-only", "mlx-ring",   "mlx-rdma"};
  size_t seen = 0;
  for (const SourceFile& file : Tree()) {
    if (!IsCpp(file) || IsUnder(file, "tests")) continue;
    std::vector<std::string> code;
    for (const std::string& line : file.lines) code.push_back(line.substr(0, line.find("//")));
    for (const std::string& word : Matches({file.path, code}, quoted)) {
      if (!names.contains(word)) continue;
      ++seen;
      EXPECT_EQ(file.path, "proto/backends.cc")
          << "\"" << word << "\" has a type in proto/backends.h";
    }
  }
  EXPECT_GE(seen, names.size());
}

struct RetiredWord {
  std::string word;  // in small letters
  std::string instead;
  bool whole = false;  // letters beside it make another word of it
};

const std::vector<RetiredWord>& RetiredWords() {
  static const std::vector<RetiredWord> words = {
      {"foretold", "predicted or estimated"},
      {"foretell", "predict or estimate"},
      {"wish", "option or constraint", true},
      {"wishes", "options or constraints", true},
      {"making room", "preemption"},
      {"leave room", "preemption"},
      {"leaveroom", "preemption"},
      {"heir", "what preempts", true},
      {"stranger", "unknown peer, or unknown node"},
      {"unheard", "unreachable, or beacons that are missing"},
      {"near miss", "suggestions"},
      {"near_miss", "suggestions"},
      {"nearmiss", "suggestions"},
      {"last words", "termination message, or last lines"},
      {"last_words", "termination message, or last lines"},
      {"lastwords", "termination message, or last lines"},
      {"problem_book", "active alarms"},
      {"problembook", "active alarms"},
      {"conductor", "gang controller"},
      {"made-up", "simulated or synthetic"},
      {"'s own words", "raw output, or message"},
      {"its own words", "raw output, or message"},
      {"mended", "fixed", true},
      {"mends", "fixes", true},
      {"knowledge file", "support list"},
      {"knowledge_file", "support_list"},
      {"modelcard", "catalogue entry"},
      {"model_card", "catalogue entry"},
      {"would_grant", "pre-votes"},
  };
  return words;
}

bool HasWord(const std::string& line, const RetiredWord& retired) {
  const auto is_letter = [&](size_t at) {
    return at < line.size() && std::isalpha(static_cast<unsigned char>(line[at])) != 0;
  };
  for (size_t at = line.find(retired.word); at != std::string::npos;
       at = line.find(retired.word, at + 1)) {
    const bool inside = (at > 0 && is_letter(at - 1)) || is_letter(at + retired.word.size());
    if (!retired.whole || !inside) return true;
  }
  return false;
}

// One word has one meaning, and it is the field's. What the bundled model was trained on stays as
// it was.
TEST(Tidy, RetiredWordsStayRetired) {
  for (const SourceFile& file : Tree()) {
    if (IsUnder(file, "deploy/models") || file.path == "tests/tidy/tidy_test.cc") continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      std::string line = file.lines[i];
      std::transform(line.begin(), line.end(), line.begin(),
                     [](unsigned char c) { return std::tolower(c); });
      for (const RetiredWord& retired : RetiredWords()) {
        EXPECT_FALSE(HasWord(line, retired))
            << Where(file, i) << ": say " << retired.instead << ", not '" << retired.word << "'";
      }
    }
  }
}

TEST(Tidy, LinesAndFilesAreShortEnough) {
  for (const SourceFile& file : Tree()) {
    if (!IsCpp(file)) continue;
    EXPECT_LE(file.lines.size(), kFileLinesMax)
        << file.path << ": perhaps two files with one door between them";
    for (size_t i = 0; i < file.lines.size(); ++i) {
      // Width in characters: continuation bytes of UTF-8 do not count.
      const std::string& line = file.lines[i];
      const auto width =
          std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
      EXPECT_LE(static_cast<size_t>(width), kLineWidthMax) << Where(file, i);
      EXPECT_EQ(line.find('\t'), std::string::npos) << Where(file, i) << ": a tab";
    }
  }
}

// C++ of the product, with what is only included by it.
bool IsProduct(const SourceFile& file) {
  return AllowedArrows().contains(TopFolder(file.path)) &&
         (IsCpp(file) || file.path.ends_with(".inc"));
}

TEST(Tidy, FunctionsFitOnAScreenAndBranchLittle) {
  size_t seen = 0;
  for (const SourceFile& file : Tree()) {
    if (!IsProduct(file)) continue;
    for (const CppFunction& function : OutlineOf(file).functions) {
      ++seen;
      const size_t lines = function.last_line - function.line;
      EXPECT_LE(lines, kFunctionLinesMax) << Where(file, function.line) << ": " << function.name
                                          << " has " << lines << " lines; name its steps";
      EXPECT_LE(function.complexity, kComplexityMax)
          << Where(file, function.line) << ": " << function.name << " has a complexity of "
          << function.complexity << "; give its decisions names of their own";
    }
  }
  EXPECT_GT(seen, 8000u);
}

TEST(Tidy, NothingIsDeclaredThatNobodyUses) {
  // What tests alone read: tables that they hold to be complete, and what a wire counts.
  const std::set<std::string> for_tests = {"AllReasonCodes", "Families", "exchanges"};
  std::vector<SourceFile> product, tests;
  for (const SourceFile& file : Tree()) {
    if (IsProduct(file) && file.path != "runtime/text/macrame_text.h") product.push_back(file);
    if (IsCpp(file) && IsUnder(file, "tests")) tests.push_back(file);
  }
  ASSERT_GT(product.size(), 800u);
  for (const DeadDeclaration& dead : DeadDeclarations(product, tests)) {
    EXPECT_TRUE(for_tests.contains(dead.name))
        << dead.path << ":" << dead.line + 1 << ": nothing of the product uses " << dead.name
        << "; delete it, or move what tests need to tests/support";
  }
}

TEST(Tidy, EveryFieldOfAMessageIsUsed) {
  std::vector<SourceFile> protos, product;
  for (const SourceFile& file : Tree()) {
    if (file.path.ends_with(".proto")) protos.push_back(file);
    if (IsProduct(file)) product.push_back(file);
  }
  ASSERT_GT(protos.size(), 5u);
  for (const DeadDeclaration& dead : DeadFields(protos, product)) {
    ADD_FAILURE() << dead.path << ":" << dead.line + 1 << ": nothing of the product sets or reads "
                  << dead.name << "; delete it and reserve its number";
  }
}

struct Ban {
  std::string pattern;
  std::string instead;
  std::vector<std::string> folders;  // empty: everywhere in the product
  std::vector<std::string> allowed;  // paths that begin so may
};

const std::vector<Ban>& Bans() {
  // Cores decide on events and the time that they are handed.
  static const std::vector<std::string> pure = {"planner", "agentd/cores", "agentd/tracing"};
  static const std::vector<Ban> bans = {
      {R"(steady_clock::now|system_clock::now|\btime\(nullptr\)|gettimeofday)",
       "take `now` as an argument",
       pure,
       {"agentd/cores/sqlite_state_store"}},
      {R"(\brand\(|random_device|mt19937)", "take random numbers as an argument", pure, {}},
      {R"(#include <(thread|mutex|condition_variable|future)>)",
       "pure code has no threads and no locks",
       pure,
       {}},
      {R"(#include <grpcpp|#include <boost/asio|#include <sys/socket)",
       "pure code has no sockets",
       pure,
       {}},
      {R"(\bsleep_for\b|\busleep\(|\bsleep\()",
       "wait for the event, with a limit",
       {"agentd", "discovery", "planner", "transport"},
       {}},
      {R"(\busing namespace std\b)", "name what you use", {}, {}},
      {R"(\b(std::)?(sprintf|strcpy|strcat|gets)\()", "absl::StrFormat or std::string", {}, {}},
      {R"(\bassert\()", "MACRAME_CHECK, which is on in release builds too", {}, {}},
      {R"(\bsystem\(|\bpopen\()",
       "discovery/probe/command_runner.h: no shell, a time limit",
       {},
       {}},
      // C++20 that the libc++ of Xcode 16 lacks or keeps behind -fexperimental-library
      // (libcxx.llvm.org/Status); what its dylib lacks, tests/macos/compile finds.
      {R"(\bstd::(jthread|stop_(token|source|callback)|execution::|osyncstream|atomic_ref)\b)"
       R"(|\bstd::atomic<std::(shared|weak)_ptr)"
       R"(|\bchrono::(zoned_time|current_zone|locate_zone|parse)\b)",
       "a Mac's libc++ has no such thing yet",
       {},
       {}},
      {R"(TODO|FIXME|XXX)", "do it, or write an issue", {}, {}},
  };
  return bans;
}

bool IsAllowed(const Ban& ban, const SourceFile& file) {
  return std::any_of(ban.allowed.begin(), ban.allowed.end(),
                     [&](const std::string& prefix) { return file.path.rfind(prefix, 0) == 0; });
}

TEST(Tidy, BannedWordsHaveTheirReplacement) {
  for (const Ban& ban : Bans()) {
    const std::regex pattern(ban.pattern);
    for (const SourceFile& file : Tree()) {
      if (!IsCpp(file) || IsUnder(file, "tests") || IsAllowed(ban, file)) continue;
      if (!ban.folders.empty() &&
          std::none_of(ban.folders.begin(), ban.folders.end(),
                       [&](const std::string& folder) { return IsUnder(file, folder); })) {
        continue;
      }
      for (size_t i = 0; i < file.lines.size(); ++i) {
        const std::string code = file.lines[i].substr(0, file.lines[i].find("//"));
        EXPECT_FALSE(std::regex_search(code, pattern))
            << Where(file, i) << ": '" << ban.pattern << "' is not used here; " << ban.instead;
      }
    }
  }
}

// Whoever makes a folder by himself forgets to remove it.
TEST(Tidy, TestsPutTheirFilesInFreshFolders) {
  static const std::regex own(R"(\bTempDir\(\)|\bmkdtemp\()");
  for (const SourceFile& file : Tree()) {
    if (!IsCpp(file) || !IsUnder(file, "tests/unit") || file.path == "tests/unit/fresh_folder.h") {
      continue;
    }
    for (size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_FALSE(std::regex_search(file.lines[i], own))
          << Where(file, i) << ": FreshFolder() of tests/unit/fresh_folder.h is removed with it";
    }
  }
}

// "agentd/node/own_node.cc" -> "agentd/node" and "own_node".
std::pair<std::string, std::string> FolderAndName(const std::string& path) {
  const size_t slash = path.rfind('/');
  return {path.substr(0, slash), path.substr(slash + 1, path.rfind('.') - slash - 1)};
}

TEST(Tidy, TestsOfASourceStandWhereItStands) {
  std::map<std::string, std::set<std::string>> rooms;  // of a source's name
  for (const SourceFile& file : Tree()) {
    if (!IsCpp(file) || !IsProduct(file)) continue;
    const auto [folder, name] = FolderAndName(file.path);
    rooms[name].insert(folder);
  }
  const std::string top = "tests/unit/", suffix = "_test";
  for (const SourceFile& file : Tree()) {
    if (!IsCpp(file) || !IsUnder(file, "tests/unit")) continue;
    auto [folder, name] = FolderAndName(file.path);
    if (folder.size() <= top.size() || !name.ends_with(suffix)) continue;
    const auto found = rooms.find(name.substr(0, name.size() - suffix.size()));
    if (found == rooms.end()) continue;
    const std::string room = folder.substr(top.size());
    EXPECT_TRUE(found->second.contains(room))
        << file.path << " belongs into tests/unit/" << *found->second.begin()
        << ", or has the name of another source";
  }
}

TEST(Tidy, NamesSayWhatIsInside) {
  static const std::regex vague(R"((^|[/_])(utils?|helpers?|misc|common_code|managers?)([/_.]|$))");
  for (const SourceFile& file : Tree()) {
    EXPECT_FALSE(std::regex_search(file.path, vague)) << file.path << ": say what it does";
  }
}

TEST(Tidy, EveryFolderOfTheProductHasAReadme) {
  std::set<std::string> folders = {"proto",  "planner", "transport", "discovery", "runtime",
                                   "agentd", "cli",     "tests",     "deploy"};
  for (const std::string& folder : folders) {
    EXPECT_TRUE(std::ifstream(folder + "/README.md").good()) << folder << " lacks a README.md";
  }
}

TEST(Tidy, HeadersAreGuardedAndSayWhatTheyAre) {
  for (const SourceFile& file : Tree()) {
    if (!file.path.ends_with(".h") || file.path == "runtime/text/macrame_text.h") continue;
    const bool guarded =
        std::find(file.lines.begin(), file.lines.end(), "#pragma once") != file.lines.end();
    EXPECT_TRUE(guarded) << file.path << ": no #pragma once";
    const bool explained = std::any_of(file.lines.begin(), file.lines.end(),
                                       [](const auto& line) { return line.rfind("//", 0) == 0; });
    EXPECT_TRUE(explained) << file.path << ": its header comment is the manual, and is missing";
  }
}

}  // namespace
}  // namespace macrame::tests
