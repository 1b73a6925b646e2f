#include "runtime/serving/markup/call_text.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/serving/markup/json_text.h"
#include "runtime/serving/markup/python_text.h"

namespace macrame::runtime::markup {
namespace {

using json = nlohmann::ordered_json;

std::string PythonCall(const PastCall& call) {
  const json arguments = json::parse(call.arguments, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> given;
  if (arguments.is_object()) {
    for (const auto& [key, value] : arguments.items()) {
      given.push_back(absl::StrCat(key, "=", PythonText(value, PythonWords::kLiteral)));
    }
  }
  return absl::StrCat(call.name, "(", absl::StrJoin(given, ", "), ")");
}

std::string JsonCall(const PastCall& call) {
  return absl::StrCat("{\"name\": ", QuotedJson(call.name), ", \"arguments\": ", call.arguments,
                      "}");
}

}  // namespace

std::string CallText(const Dialect& dialect, const std::vector<PastCall>& calls) {
  if (dialect.openers.empty() || calls.empty()) return "";
  const std::string& opener = dialect.openers[0];
  const auto joined = [&calls](const char* separator, auto write) {
    return absl::StrJoin(calls, separator, [&write](std::string* out, const PastCall& call) {
      absl::StrAppend(out, write(call));
    });
  };
  if (dialect.syntax == CallSyntax::kPythonic) {
    return absl::StrCat(opener, "[", joined(", ", PythonCall), "]", dialect.closer);
  }
  if (dialect.syntax != CallSyntax::kTagged || dialect.name_is_key) return "";
  if (absl::StartsWith(dialect.forced_named, absl::StrCat(opener, "[{\"name\""))) {
    return absl::StrCat(opener, "[", joined(", ", JsonCall), "]", dialect.closer);
  }
  if (!absl::StartsWith(dialect.forced_named, absl::StrCat(opener, "\n{\"name\""))) return "";
  return joined("\n", [&](const PastCall& call) {
    return absl::StrCat(opener, "\n", JsonCall(call), "\n", dialect.closer);
  });
}

}  // namespace macrame::runtime::markup
