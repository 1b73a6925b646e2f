#include "agentd/gateway/generation/model_abilities.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "agentd/gateway/base/model_failure.h"
#include "agentd/gateway/base/tenant.h"
#include "agentd/gateway/dialects/ollama_answer.h"
#include "agentd/gateway/dialects/ollama_request.h"
#include "agentd/gateway/fields/bounded_json.h"
#include "agentd/gateway/generation/generation_feed.h"
#include "agentd/gateway/http/asio_names.h"
#include "agentd/gateway/http/read_aside.h"

namespace macrame::agentd {
namespace {

// To find out what a model can do.
constexpr std::chrono::milliseconds kAbilitiesMs{2000};
constexpr int kPromptEndTokens = 8;
constexpr char kProbeTool[] =
    R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": )"
    R"({"type": "object", "properties": {"p": {"type": "string", "description": "d"}}}}}])";
constexpr char kThinking[] = R"({"enable_thinking": true, "thinking": true})";
constexpr char kLittleThinking[] =
    R"({"enable_thinking": true, "thinking": true, "reasoning_effort": "low"})";
constexpr char kNotThinking[] = R"({"enable_thinking": false, "thinking": false})";

v1::GenerateRequest TokensOfShortChat() {
  v1::GenerateRequest request;
  v1::ChatMessage& message = *request.add_messages();
  message.set_role("user");
  message.set_content("a");
  request.mutable_tokenize();
  return request;
}

// The member "model" (or "name", as older clients say) of a body.
std::variant<std::string, ApiError> ModelNamed(absl::string_view body, size_t json_depth_max) {
  Json read;
  if (auto error = ParseBoundedJson(body, json_depth_max, &read)) return *std::move(error);
  for (const char* name : {"model", "name"}) {
    if (!read.is_object() || !read.contains(name) || !read[name].is_string()) continue;
    return WithoutLatest(read[name].get<std::string>());
  }
  return BadRequest("'model' is missing.", "model", "missing_required_parameter");
}

// What a request with TokenizeOptions is answered.
net::awaitable<absl::StatusOr<v1::GenerateChunk>> AskForTokens(Exchange& exchange,
                                                               std::string model,
                                                               v1::GenerateRequest request) {
  request.set_request_id(exchange.IdForRank());
  request.set_deployment(exchange.options().aliases.Resolve(model, exchange.Backend()));
  request.set_max_tokens(1);  // a rank that tells no tokens answers no more
  SetTenant(exchange.WhoAsks(), &request);
  std::vector<v1::GenerateRequest> requests;
  requests.push_back(std::move(request));
  GenerationFeed::Bounds bounds;
  bounds.buffered_bytes = exchange.options().answer_bytes_max;
  const auto feed =
      GenerationFeed::Start(exchange.state()->io, exchange.Backend(), std::move(requests), bounds);
  const Clock::time_point limit = Clock::now() + kAbilitiesMs;
  v1::GenerateChunk told;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now());
    if (left.count() <= 0) break;
    const GenerationFeed::Event event = co_await feed->Next(left);
    if (event.kind == GenerationFeed::EventKind::kChunk) told.MergeFrom(event.chunk);
    if (event.kind == GenerationFeed::EventKind::kGone) break;
    if (event.kind != GenerationFeed::EventKind::kDone) continue;
    if (!event.status.ok()) co_return event.status;
    co_return told;
  }
  feed->Close();
  co_return absl::DeadlineExceededError("the entry rank did not answer in time");
}

net::awaitable<ModelAbilities> AbilitiesOf(Exchange& exchange, std::string model) {
  ModelAbilities abilities;
  v1::GenerateRequest with_tool = TokensOfShortChat();
  with_tool.mutable_tokenize()->set_count_only(true);
  with_tool.mutable_tools()->set_tools_json(kProbeTool);
  auto told = co_await AskForTokens(exchange, model, std::move(with_tool));
  abilities.takes_tools = told.ok();
  v1::GenerateRequest thinking = TokensOfShortChat();
  thinking.set_template_arguments_json(kThinking);
  auto on = co_await AskForTokens(exchange, model, std::move(thinking));
  v1::GenerateRequest silent = TokensOfShortChat();
  silent.set_template_arguments_json(kNotThinking);
  auto off = co_await AskForTokens(exchange, model, std::move(silent));
  if (!on.ok() || on->token_ids().empty()) co_return abilities;
  // A switch changes the prompt. Models that always think begin it in the prompt.
  abilities.thinks = !off.ok() || !std::equal(on->token_ids().begin(), on->token_ids().end(),
                                              off->token_ids().begin(), off->token_ids().end());
  if (abilities.thinks) co_return abilities;
  v1::GenerateRequest brief = TokensOfShortChat();
  brief.set_template_arguments_json(kLittleThinking);
  auto little = co_await AskForTokens(exchange, model, std::move(brief));
  abilities.thinks =
      little.ok() && !std::equal(on->token_ids().begin(), on->token_ids().end(),
                                 little->token_ids().begin(), little->token_ids().end());
  if (abilities.thinks) co_return abilities;
  v1::GenerateRequest end;
  end.mutable_tokenize()->set_detokenize(true);
  const int count = on->token_ids_size();
  for (int i = std::max(0, count - kPromptEndTokens); i < count; ++i) {
    end.add_prompt_token_ids(on->token_ids(i));
  }
  auto text = co_await AskForTokens(exchange, model, std::move(end));
  abilities.thinks = text.ok() && absl::StrContains(absl::AsciiStrToLower(text->text()), "think");
  co_return abilities;
}

}  // namespace

net::awaitable<bool> AnswerOllamaModel(Exchange& exchange) {
  auto named = co_await ReadAside(exchange, ModelNamed);
  if (auto* error = std::get_if<ApiError>(&named))
    co_return co_await exchange.SendError(std::move(*error));
  const std::string& id = std::get<std::string>(named);
  const std::vector<ServedModel> models =
      exchange.options().aliases.WithAliases(exchange.Backend());
  const ServedModel* model = FindModel(models, id);
  if (model == nullptr) co_return co_await exchange.SendError(UnknownModel(id, exchange.Backend()));
  HttpReply reply;
  ModelAbilities abilities = {.takes_tools = false};
  if (!model->is_stopped) abilities = co_await AbilitiesOf(exchange, model->id);
  reply.body = OllamaModelBody(*model, abilities);
  co_return co_await exchange.SendReply(std::move(reply));
}

}  // namespace macrame::agentd
