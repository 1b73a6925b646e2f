#include "agentd/gateway/dialects/input_items.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agentd/base/web_url.h"
#include "agentd/gateway/dialects/answer_format.h"

namespace macrame::agentd {
namespace {

using nlohmann::ordered_json;

constexpr int kLimit = 20, kLimitMax = 100;

struct Page {
  bool is_ascending = false;
  int limit = kLimit;
  std::string after;
};

std::variant<Page, ApiError> ReadPage(absl::string_view query) {
  Page page;
  for (const absl::string_view part : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> field = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const std::string value = PercentDecode(field.second);
    if (field.first == "order") {
      if (value != "asc" && value != "desc") {
        return BadRequest("'order' must be asc or desc.", "order", "invalid_value");
      }
      page.is_ascending = value == "asc";
    } else if (field.first == "limit") {
      if (!absl::SimpleAtoi(value, &page.limit) || page.limit < 1 || page.limit > kLimitMax) {
        return BadRequest(absl::StrCat("'limit' must be from 1 to ", kLimitMax, "."), "limit",
                          "invalid_value");
      }
    } else if (field.first == "after") {
      page.after = value;
    }
  }
  return page;
}

// The ids stay the same for as long as the response is stored.
class ItemList {
 public:
  explicit ItemList(const std::string& response) : response_(response) {}

  void Add(const nlohmann::json& message) {
    const std::string role = message.value("role", "");
    const std::string content = TextOf(message);
    if (role == "tool") {
      items_.push_back({{"id", Id("fco_")},
                        {"type", "function_call_output"},
                        {"call_id", message.value("tool_call_id", "")},
                        {"output", content},
                        {"status", "completed"}});
      return;
    }
    const auto calls = message.find("tool_calls");
    const bool has_calls = calls != message.end() && calls->is_array();
    if (!content.empty() || !has_calls) {
      const char* type = role == "assistant" ? "output_text" : "input_text";
      ordered_json part = {{"type", type}, {"text", content}};
      if (role == "assistant") part["annotations"] = ordered_json::array();
      items_.push_back({{"id", Id("msg_")},
                        {"type", "message"},
                        {"role", role},
                        {"content", {std::move(part)}},
                        {"status", "completed"}});
    }
    if (!has_calls) return;
    for (const nlohmann::json& call : *calls) {
      const nlohmann::json function = call.value("function", nlohmann::json::object());
      items_.push_back({{"id", Id("fc_")},
                        {"type", "function_call"},
                        {"call_id", call.value("id", "")},
                        {"name", function.value("name", "")},
                        {"arguments", function.value("arguments", "")},
                        {"status", "completed"}});
    }
  }
  std::vector<ordered_json>& items() { return items_; }

 private:
  static std::string TextOf(const nlohmann::json& message) {
    const auto content = message.find("content");
    return content != message.end() && content->is_string() ? content->get<std::string>() : "";
  }
  std::string Id(const char* prefix) const {
    return absl::StrCat(prefix, response_, "_", items_.size());
  }

  const std::string response_;
  std::vector<ordered_json> items_;
};

}  // namespace

std::variant<std::string, ApiError> InputItemsBody(const std::string& id,
                                                   const std::string& messages,
                                                   absl::string_view query) {
  auto read = ReadPage(query);
  if (auto* error = std::get_if<ApiError>(&read)) return std::move(*error);
  const Page& page = std::get<Page>(read);
  nlohmann::json chat = nlohmann::json::parse(messages, nullptr, false);
  if (!chat.is_array()) chat = nlohmann::json::array();
  // The answer itself.
  if (!chat.empty() && chat.back().value("role", "") == "assistant") chat.erase(chat.size() - 1);
  ItemList list(id);
  for (const nlohmann::json& message : chat) list.Add(message);
  std::vector<ordered_json>& items = list.items();
  if (!page.is_ascending) std::reverse(items.begin(), items.end());
  auto begin = items.begin();
  if (!page.after.empty()) {
    begin = std::find_if(items.begin(), items.end(),
                         [&page](const ordered_json& item) { return item["id"] == page.after; });
    if (begin == items.end()) {
      return BadRequest("'after' names no item of this response.", "after", "invalid_value");
    }
    ++begin;
  }
  const auto end = begin + std::min<std::ptrdiff_t>(page.limit, items.end() - begin);
  ordered_json body;
  body["object"] = "list";
  body["data"] = ordered_json(std::vector<ordered_json>(begin, end));
  body["first_id"] = begin == end ? ordered_json(nullptr) : (*begin)["id"];
  body["last_id"] = begin == end ? ordered_json(nullptr) : (*(end - 1))["id"];
  body["has_more"] = end != items.end();
  return Dump(body);
}

}  // namespace macrame::agentd
