// The text library at the end of a pipe, for comparing it with `transformers`.
//
// Reads one JSON request a line and answers each with one line: {"ids": […]}, {"text": "…"} or
// {"error": "…", "code": n}. Requests:
//   {"op": "encode", "folder": …, "text": …, "add": bool, "special": bool}
//   {"op": "decode", "folder": …, "ids": […], "skip": bool}
//   {"op": "stream", "folder": …, "ids": […], "skip": bool}    all pieces joined
//   {"op": "render" or "chat", "folder": …, "messages": […], "tools": […] or null, "kwargs": {…},
//    "generation": bool, "time": seconds}
//   {"op": "facts", "folder": …}

#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace macrame::runtime::text {
namespace {

using Json = nlohmann::ordered_json;

Json Failure(const absl::Status& status) {
  return {{"error", std::string(status.message())}, {"code", static_cast<int>(status.code())}};
}

template <typename T>
class Cache {
 public:
  absl::StatusOr<const T*> Get(const std::string& folder) {
    auto found = loaded_.find(folder);
    if (found == loaded_.end()) {
      auto made = T::Load(folder);
      if (!made.ok()) return made.status();
      found = loaded_.emplace(folder, std::move(*made)).first;
    }
    return &found->second;
  }

 private:
  std::map<std::string, T> loaded_;
};

class Probe {
 public:
  Json Answer(const Json& request) {
    const std::string op = request["op"];
    const std::string folder = request["folder"];
    if (op == "render" || op == "chat") return Chat(op == "chat", folder, request);
    const auto tokenizer = tokenizers_.Get(folder);
    if (!tokenizer.ok()) return Failure(tokenizer.status());
    if (op == "encode") {
      const auto ids =
          (*tokenizer)
              ->Encode(request["text"].get<std::string>(), request["add"], request["special"]);
      return ids.ok() ? Json{{"ids", *ids}} : Failure(ids.status());
    }
    if (op == "facts") {
      return {{"vocab_size", (*tokenizer)->VocabSize()},
              {"bos", (*tokenizer)->BosId().value_or(-1)},
              {"eos", (*tokenizer)->EosIds()}};
    }
    const auto ids = request["ids"].get<std::vector<int32_t>>();
    if (op == "decode") {
      const auto text = (*tokenizer)->Decode(ids, request["skip"]);
      return text.ok() ? Json{{"text", *text}} : Failure(text.status());
    }
    StreamDecoder stream = (*tokenizer)->NewStream(request["skip"]);
    std::string text;
    for (const int32_t id : ids) text += stream.Push(id);
    return {{"text", text + stream.Finish()}};
  }

 private:
  Json Chat(bool as_ids, const std::string& folder, const Json& request) {
    const auto chat_template = templates_.Get(folder);
    if (!chat_template.ok()) return Failure(chat_template.status());
    const std::string messages = request["messages"].dump();
    const std::string tools = request["tools"].is_null() ? "" : request["tools"].dump();
    const std::string kwargs = request["kwargs"].dump();
    ChatPrompt prompt;
    prompt.messages_json = messages;
    prompt.tools_json = tools;
    prompt.kwargs_json = kwargs;
    prompt.add_generation_prompt = request["generation"];
    prompt.local_unix_s = request["time"].get<int64_t>();
    if (!as_ids) {
      const auto text = (*chat_template)->Render(prompt);
      return text.ok() ? Json{{"text", *text}} : Failure(text.status());
    }
    const auto tokenizer = tokenizers_.Get(folder);
    if (!tokenizer.ok()) return Failure(tokenizer.status());
    const auto ids = (*chat_template)->EncodeChat(**tokenizer, prompt);
    return ids.ok() ? Json{{"ids", *ids}} : Failure(ids.status());
  }

  Cache<Tokenizer> tokenizers_;
  Cache<ChatTemplate> templates_;
};

}  // namespace
}  // namespace macrame::runtime::text

int main() {
  macrame::runtime::text::Probe probe;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << probe.Answer(nlohmann::ordered_json::parse(line)).dump() << std::endl;
  }
}
