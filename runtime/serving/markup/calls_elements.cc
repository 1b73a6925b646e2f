// Calls whose parameters are elements named after them, with a mark before each tag: MiniMax M3.
//
//   MARK<invoke name="search">MARK<city>RomeMARK</city>MARK<tags>MARK<item>aMARK</item>MARK</tags>
//   MARK</invoke>
//
// Objects are elements within elements; lists are elements named "item", or of one name. What
// stands between tags without the mark is text, whatever it looks like.

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/serving/markup/json_text.h"
#include "runtime/serving/markup/transcript.h"

namespace macrame::runtime::markup {
namespace {

constexpr std::array<std::string_view, 1> kTagEnd = {">"};
constexpr int kElementDepthMax = 32;
constexpr std::string_view kItem = "item";
// What stands between the elements of an object.
constexpr std::string_view kMixedText = "$text";

struct Element {
  std::string name{};
  std::string text{};
  std::vector<Element> children{};
};

struct ElementEnd {
  bool is_whole = true;    // not cut off
  bool ends_call = false;  // the call's or the block's own closing tag was missing or came first
};

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::string ElementAsJson(const Element& element, const ToolSet& tools, std::string_view tool,
                          std::vector<std::string>& path);

std::string ListAsJson(const std::vector<const Element*>& items, const ToolSet& tools,
                       std::string_view tool, std::vector<std::string>& path) {
  std::string list = "[";
  path.emplace_back(ToolSet::kItems);
  for (const Element* item : items) {
    if (list.size() > 1) list += ", ";
    list += ElementAsJson(*item, tools, tool, path);
  }
  path.pop_back();
  return list + "]";
}

bool IsList(const Element& element, const ValueKinds& kinds) {
  if (kinds.is_known && kinds.array != kinds.object) return kinds.array;
  for (const Element& child : element.children) {
    if (child.name != kItem) return false;
  }
  return true;
}

std::string ObjectAsJson(const Element& element, const ToolSet& tools, std::string_view tool,
                         std::vector<std::string>& path) {
  std::vector<std::pair<std::string_view, std::vector<const Element*>>> members;
  for (const Element& child : element.children) {
    auto member = members.begin();
    while (member != members.end() && member->first != child.name) ++member;
    if (member == members.end()) member = members.insert(member, {child.name, {}});
    member->second.push_back(&child);
  }
  std::string object = "{";
  const auto begin = [&object](std::string_view name) {
    object += (object.size() > 1 ? ", " : "") + QuotedJson(name) + ": ";
  };
  for (const auto& [name, same] : members) {
    begin(name);
    path.emplace_back(name);
    object += same.size() == 1 ? ElementAsJson(*same[0], tools, tool, path)
                               : ListAsJson(same, tools, tool, path);
    path.pop_back();
  }
  if (!IsBlank(element.text)) {
    begin(kMixedText);
    object += QuotedJson(element.text);
  }
  return object + "}";
}

std::string ElementAsJson(const Element& element, const ToolSet& tools, std::string_view tool,
                          std::vector<std::string>& path) {
  const ValueKinds kinds = tools.KindsAt(tool, path);
  if (element.children.empty()) {
    // Of a list or an object that has nothing in it, the element alone stands there.
    if (IsBlank(element.text) && kinds.is_known && !kinds.string) {
      if (kinds.array) return "[]";
      if (kinds.object) return "{}";
    }
    return ValueAsJson(element.text, kinds);
  }
  if (!IsList(element, kinds)) return ObjectAsJson(element, tools, tool, path);
  std::vector<const Element*> items;
  for (const Element& child : element.children) items.push_back(&child);
  return ListAsJson(items, tools, tool, path);
}

// `same`: at least one element, all of one name.
std::string ParameterAsJson(const std::vector<Element>& same, const ToolSet& tools,
                            std::string_view tool) {
  std::vector<std::string> path = {same[0].name};
  if (same.size() == 1) return ElementAsJson(same[0], tools, tool, path);
  std::vector<const Element*> items;
  for (const Element& one : same) items.push_back(&one);
  return ListAsJson(items, tools, tool, path);
}

// A tag's name: up to white space.
std::string_view NameOfElement(std::string_view tag) {
  return tag.substr(0, tag.find_first_of(" \t\r\n"));
}

// The call's or the block's closing tag stands next, and stays there.
Reading<bool> IsAtEndOfCall(Transcript& t) {
  TextSource& in = t.source;
  for (const std::string_view closer :
       {std::string_view(t.dialect.function.function_close), std::string_view(t.dialect.closer)}) {
    while (in.rest().size() < closer.size() && closer.starts_with(in.rest())) {
      const bool more = co_await in.More();
      if (!more) break;
    }
    if (in.rest().starts_with(closer)) co_return true;
  }
  co_return false;
}

// Reads one parameter behind its opening tag, up to and with its closing one.
class ParameterReader {
 public:
  ParameterReader(Transcript& t, std::string name, bool is_text)
      : t_(t), is_text_(is_text), open_({Element{std::move(name)}}) {}

  Reading<ElementEnd> Read() {
    TextSource& in = t_.source;
    const std::array<std::string_view, 1> marks = {t_.dialect.mark};
    for (;;) {
      const size_t which =
          co_await in.CopyTo(marks, [this](std::string_view text) { Append(text); });
      if (which == TextSource::kNone) break;
      const bool at_end = co_await IsAtEndOfCall(t_);
      if (at_end) {
        CloseAll();
        co_return ElementEnd{true, true};
      }
      in.Skip(t_.dialect.mark.size());
      const std::optional<std::string> tag = co_await in.TextTo(kTagEnd, kHeaderBytesMax);
      if (!tag.has_value()) continue;  // a mark alone
      in.Skip(1);
      if (Take(*tag)) co_return ElementEnd{};
    }
    CloseAll();
    co_return ElementEnd{!t_.is_cut, true};
  }

  // The parameter, when it was read.
  const Element& root() const { return open_.front(); }

 private:
  void Append(std::string_view text) {
    if (!is_text_) {
      open_.back().text += text;
      return;
    }
    std::string escaped;
    AppendEscaped(text, escaped);
    t_.sink.Arguments(escaped);
  }

  // A tag behind a mark; whether it closed the parameter.
  bool Take(std::string_view tag) {
    const bool opens = tag.starts_with("<");
    const bool closes = tag.starts_with("</");
    const std::string_view name = NameOfElement(tag.substr(closes ? 2 : opens ? 1 : 0));
    if (closes) {
      for (size_t i = open_.size(); i-- > 0;) {
        if (open_[i].name != name) continue;
        while (open_.size() > i + 1) Close();
        if (i == 0) return true;
        Close();
        return false;
      }
    } else if (opens && !is_text_ && !name.empty() && open_.size() < kElementDepthMax) {
      open_.push_back(Element{std::string(name)});
      return false;
    }
    Append(std::string(tag) + ">");
    return false;
  }

  void Close() {
    Element done = std::move(open_.back());
    open_.pop_back();
    open_.back().children.push_back(std::move(done));
  }
  void CloseAll() {
    while (open_.size() > 1) Close();
  }

  Transcript& t_;
  const bool is_text_;
  std::vector<Element> open_;  // the parameter, and what is open within it
};

// The value of the parameter `key` of `name`, which is told; whether it is whole.
Reading<bool> ReadParameter(Transcript& t, std::string name, std::string key) {
  TextSource& in = t.source;
  const bool is_text = t.tools.KindsOf(name, key).OnlyString();
  ParameterReader reader(t, key, is_text);
  if (is_text) t.sink.Arguments("\"");
  ElementEnd end = co_await reader.Read();
  if (is_text) {
    if (end.is_whole) t.sink.Arguments("\"");
    co_return end.is_whole;
  }
  std::vector<Element> same;  // a list may be written as one element for each item
  same.push_back(reader.root());
  while (!end.ends_call) {
    in.Mark();
    co_await in.SkipSpace();
    const bool again = co_await in.Accept(t.dialect.function.parameter_open + key + ">");
    if (!again) {
      in.Rewind();
      break;
    }
    in.Forget();
    ParameterReader next(t, key, /*is_text=*/false);
    end = co_await next.Read();
    same.push_back(next.root());
  }
  if (end.is_whole) t.sink.Arguments(ParameterAsJson(same, t.tools, name));
  co_return end.is_whole;
}

}  // namespace

Reading<bool> ReadElements(Transcript& t, std::string name) {
  TextSource& in = t.source;
  const FunctionTags& tags = t.dialect.function;
  int count = 0;
  bool is_whole = true;
  for (;;) {
    co_await in.SkipSpace();
    const bool closed = co_await in.Accept(tags.function_close);
    if (closed) break;
    const bool at_block_end = co_await IsAtEndOfCall(t);
    const bool opened = !at_block_end && co_await in.Accept(tags.parameter_open);
    if (!opened) {
      is_whole = !in.has_ended() || !t.is_cut;
      break;
    }
    const std::optional<std::string> tag = co_await in.TextTo(kTagEnd, kHeaderBytesMax);
    const std::string key(tag.has_value() ? NameOfElement(*tag) : "");
    if (key.empty() || key[0] == '/') {
      is_whole = !t.is_cut;
      break;
    }
    in.Skip(1);
    t.sink.Arguments((count++ == 0 ? "{" : ", ") + QuotedJson(key) + ": ");
    is_whole = co_await ReadParameter(t, name, key);
    if (!is_whole) break;
  }
  if (is_whole) t.sink.Arguments(count == 0 ? "{}" : "}");
  t.sink.EndCall();
  co_return true;
}

}  // namespace macrame::runtime::markup
