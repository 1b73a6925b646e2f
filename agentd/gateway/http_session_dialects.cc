// What HttpSession answers in other APIs' forms: each is read as a chat, and written by its writer.

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/asio_names.h"
#include "agentd/gateway/bounded_json.h"
#include "agentd/gateway/http_session.h"
#include "agentd/gateway/input_items.h"
#include "agentd/gateway/messages_request.h"
#include "agentd/gateway/ollama_answer.h"
#include "agentd/gateway/ollama_request.h"
#include "agentd/gateway/read_aside.h"
#include "agentd/gateway/response_answer.h"
#include "agentd/gateway/response_request.h"
#include "agentd/gateway/routes.h"
#include "agentd/gateway/sampling_fields.h"
#include "agentd/gateway/tenant.h"
#include "agentd/gateway/token_request.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

// `is_previous`: a request goes on from it; clients know that by its code and 400.
ApiError NotStored(const std::string& id, bool may_store, bool is_previous = false) {
  const std::string what =
      may_store ? absl::StrCat("A node keeps up to ", kStoredResponsesMax,
                               " of those that it answered itself, and up to ",
                               kStoredResponsesBytesMax >> 20,
                               " MiB, until it stops and for as long as its operator lets it.")
                : "Nothing of this key's tenant is stored: its retention is 0.";
  ApiError error =
      HttpError(is_previous ? 400 : 404,
                absl::StrCat("No response '", id.substr(0, 128), "' is stored on this node. ", what,
                             " Send the whole conversation as 'input' instead."),
                is_previous ? "previous_response_not_found" : "response_not_found");
  error.param = "previous_response_id";
  return error;
}

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

constexpr absl::string_view kInputItems = "/input_items";

absl::string_view QueryOf(absl::string_view target) {
  const size_t mark = target.find('?');
  return mark == absl::string_view::npos ? "" : target.substr(mark + 1);
}

std::string DeletedBody(const std::string& id) {
  return Dump({{"id", id}, {"object", "response"}, {"deleted", true}});
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

std::variant<EmbeddingRequest, ApiError> ReadOllamaEmbed(absl::string_view body, size_t depth) {
  return ParseOllamaEmbed(body, depth, /*is_older=*/false);
}

std::variant<EmbeddingRequest, ApiError> ReadOllamaEmbeddings(absl::string_view body,
                                                              size_t depth) {
  return ParseOllamaEmbed(body, depth, /*is_older=*/true);
}

}  // namespace

net::awaitable<bool> HttpSession::ServeAs(std::variant<ChatRequest, ApiError> parsed,
                                          AnswerForm form, const char* id_prefix) {
  if (auto* error = std::get_if<ApiError>(&parsed)) co_return co_await SendError(std::move(*error));
  ChatRequest& chat = std::get<ChatRequest>(parsed);
  AnswerHead head = HeadOf(chat, id_prefix);
  head.form = form;
  head.choices = head.choices_per_prompt;
  head.excludes_reasoning = chat.excludes_reasoning;
  if (form == AnswerForm::kTokens) {
    const std::vector<ServedModel> models = Backend().ListModels();
    const ServedModel* model = FindModel(models, DeploymentOfReplica(head.model));
    if (model != nullptr) head.context_length = model->context_length;
  }
  if (auto fault = CheckModelAccess(head.model)) co_return co_await SendError(*std::move(fault));
  std::optional<ApiError> no_room =
      co_await RoomForCopies((chat.choices - 1) * record_.bytes_received);
  if (no_room.has_value()) co_return co_await SendError(*std::move(no_room));
  co_return co_await Answer(std::move(head), RequestsOfChoices(chat.generate, chat.choices),
                            chat.stream);
}

net::awaitable<bool> HttpSession::ServeInputs(std::variant<EmbeddingRequest, ApiError> parsed,
                                              AnswerForm form) {
  if (auto* error = std::get_if<ApiError>(&parsed)) co_return co_await SendError(std::move(*error));
  EmbeddingRequest& request = std::get<EmbeddingRequest>(parsed);
  AnswerHead head = HeadOf(request, "embd-");
  head.form = form;
  head.as_base64 = request.as_base64;
  head.choices = static_cast<uint32_t>(request.inputs.size());
  co_return co_await Answer(std::move(head), RequestsOfInputs(request), /*stream=*/false);
}

net::awaitable<bool> HttpSession::ServeDialect(RouteKind kind) {
  if (kind == RouteKind::kMessages) {
    auto parsed = co_await ReadAside(ParseMessagesRequest);
    co_return co_await ServeAs(std::move(parsed), AnswerForm::kMessage, "msg_");
  }
  if (kind == RouteKind::kCountTokens) {
    auto parsed = co_await ReadAside(ParseCountTokensRequest);
    co_return co_await ServeAs(std::move(parsed), AnswerForm::kTokenCount, "tok_");
  }
  if (kind == RouteKind::kTokenize) {
    auto parsed = co_await ReadAside(ParseTokenizeRequest);
    co_return co_await ServeAs(std::move(parsed), AnswerForm::kTokens, "tok_");
  }
  if (kind == RouteKind::kDetokenize) {
    auto parsed = co_await ReadAside(ParseDetokenizeRequest);
    co_return co_await ServeAs(std::move(parsed), AnswerForm::kTokenText, "tok_");
  }
  if (kind == RouteKind::kResponses) co_return co_await ServeResponse();
  co_return co_await ServeOllama(kind);
}

net::awaitable<std::variant<HttpSession::StoredText, ApiError>> HttpSession::TakeStored(
    std::string id, ResponseStore::Text ResponseStore::Turn::*which, bool is_previous) {
  const std::string tenant = WhoAsks().tenant;
  StoredAnswers& answers = state_->access->answers();
  auto turn = answers.Find(id, tenant, GatewayUnixMs());
  if (turn.has_value()) {
    const size_t bytes = ((*turn).*which)->size();
    turn.reset();
    std::optional<ApiError> no_room = co_await RoomForStored(bytes);
    if (no_room.has_value()) co_return *std::move(no_room);
    turn = answers.Find(id, tenant, GatewayUnixMs());
  }
  if (!turn.has_value()) co_return NotStored(id, answers.MayStore(tenant), is_previous);
  co_return StoredText{std::move((*turn).*which), turn->since_unix_ms};
}

net::awaitable<bool> HttpSession::ServeResponse() {
  const Asker asker = WhoAsks();
  const std::string previous = co_await ReadAside(PreviousResponseOf);
  StoredAnswers& answers = state_->access->answers();
  const bool may_store = answers.MayStore(asker.tenant);
  const uint64_t begun = answers.Begin();
  StoredText before{std::make_shared<const std::string>()};
  if (!previous.empty()) {
    auto found = co_await TakeStored(previous, &ResponseStore::Turn::messages, true);
    if (auto* error = std::get_if<ApiError>(&found)) {
      co_return co_await SendError(std::move(*error));
    }
    before = std::move(std::get<StoredText>(found));
  }
  // Made before it is waited for: no lambda stands in this coroutine's frame.
  std::function<std::variant<ResponseRequest, ApiError>(absl::string_view, size_t)> read =
      [&before, may_store](absl::string_view body, size_t depth) {
        return ParseResponseRequest(body, depth, *before.text, may_store);
      };
  auto parsed = co_await ReadAside(std::move(read));
  before.text.reset();  // the request has it
  if (auto* error = std::get_if<ApiError>(&parsed)) co_return co_await SendError(std::move(*error));
  ResponseRequest& request = std::get<ResponseRequest>(parsed);
  AnswerHead head = HeadOf(request.chat, "resp_");
  head.form = AnswerForm::kResponse;
  head.response = std::make_shared<ResponseTurn>();
  head.response->echo = std::move(request.echo);
  head.response->messages = std::move(request.messages);
  head.response->namespaced = std::move(request.namespaced);
  if (request.is_kept) {
    head.response->keep = [state = state_, asker, begun, since = before.since_unix_ms,
                           id = head.id](std::string answered, std::string messages) {
      state->access->answers().Put(
          id,
          {.tenant = asker.tenant,
           .body = std::make_shared<const std::string>(std::move(answered)),
           .messages = std::make_shared<const std::string>(std::move(messages)),
           .since_unix_ms = since,
           .holder = asker.holder},
          begun, GatewayUnixMs());
    };
  }
  co_return co_await Answer(std::move(head), RequestsOfChoices(request.chat.generate, 1),
                            request.chat.stream);
}

net::awaitable<bool> HttpSession::ServeStoredResponse(std::string id) {
  const std::string tenant = WhoAsks().tenant;
  const auto& request = parser_->get();
  StoredAnswers& answers = state_->access->answers();
  HttpReply reply;
  if (request.method() == http::verb::delete_) {
    if (absl::EndsWith(id, kInputItems)) {
      co_return co_await SendError(
          HttpError(405, "Items are deleted with their response.", "method_not_allowed"));
    }
    if (!answers.Erase(id, tenant, GatewayUnixMs())) {
      co_return co_await SendError(NotStored(id, answers.MayStore(tenant)));
    }
    reply.body = DeletedBody(id);
    co_return co_await SendReply(std::move(reply));
  }
  if (Plain(request.target()).find("stream=true") != absl::string_view::npos) {
    co_return co_await SendError(
        BadRequest("'stream' can't be honoured: what is stored is whole; leave it out.", "stream",
                   "unsupported_parameter"));
  }
  const bool is_of_items = absl::EndsWith(id, kInputItems);
  if (is_of_items) id.resize(id.size() - kInputItems.size());
  const auto which = is_of_items ? &ResponseStore::Turn::messages : &ResponseStore::Turn::body;
  auto found = co_await TakeStored(id, which, /*is_previous=*/false);
  if (auto* error = std::get_if<ApiError>(&found)) co_return co_await SendError(std::move(*error));
  reply.shared_body = std::move(std::get<StoredText>(found).text);
  if (is_of_items) {
    auto page = InputItemsBody(id, *reply.shared_body, QueryOf(Plain(request.target())));
    if (auto* error = std::get_if<ApiError>(&page)) co_return co_await SendError(std::move(*error));
    reply.body = std::move(std::get<std::string>(page));
    reply.shared_body.reset();
  }
  co_return co_await SendReply(std::move(reply));
}

net::awaitable<bool> HttpSession::ServeOllama(RouteKind kind) {
  if (kind == RouteKind::kOllamaShow) co_return co_await ServeOllamaModel();
  if (kind == RouteKind::kOllamaEmbed || kind == RouteKind::kOllamaEmbeddings) {
    const bool is_older = kind == RouteKind::kOllamaEmbeddings;
    const auto read = is_older ? ReadOllamaEmbeddings : ReadOllamaEmbed;
    auto parsed = co_await ReadAside(read);
    const AnswerForm form = is_older ? AnswerForm::kOllamaEmbedding : AnswerForm::kOllamaEmbed;
    co_return co_await ServeInputs(std::move(parsed), form);
  }
  const bool is_chat = kind == RouteKind::kOllamaChat;
  const auto read = is_chat ? ParseOllamaChat : ParseOllamaGenerate;
  auto parsed = co_await ReadAside(read);
  if (auto* error = std::get_if<ApiError>(&parsed)) co_return co_await SendError(std::move(*error));
  OllamaRequest& request = std::get<OllamaRequest>(parsed);
  const AnswerForm form = is_chat ? AnswerForm::kOllamaChat : AnswerForm::kOllamaText;
  if (!request.is_load) {
    std::variant<ChatRequest, ApiError> chat = std::move(request.chat);
    co_return co_await ServeAs(std::move(chat), form, "ollama-");
  }
  AnswerHead head = HeadOf(request.chat, "ollama-");
  head.form = form;
  const std::vector<ServedModel> models = Backend().ListModels();
  if (FindModel(models, head.model) == nullptr) {
    co_return co_await SendError(UnknownModel(asked_model_, Backend()));
  }
  HttpReply reply;
  reply.body = OllamaLoadBody(head);
  co_return co_await SendReply(std::move(reply));
}

net::awaitable<absl::StatusOr<v1::GenerateChunk>> HttpSession::AskForTokens(
    std::string model, v1::GenerateRequest request) {
  request.set_request_id(IdForRank());
  request.set_deployment(state_->options.aliases.Resolve(model, Backend()));
  request.set_max_tokens(1);  // a rank that tells no tokens answers no more
  SetTenant(WhoAsks(), &request);
  std::vector<v1::GenerateRequest> requests;
  requests.push_back(std::move(request));
  GenerationFeed::Bounds bounds;
  bounds.buffered_bytes = state_->options.answer_bytes_max;
  const auto feed = GenerationFeed::Start(state_->io, Backend(), std::move(requests), bounds);
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

net::awaitable<ModelAbilities> HttpSession::AbilitiesOf(std::string model) {
  ModelAbilities abilities;
  v1::GenerateRequest with_tool = TokensOfShortChat();
  with_tool.mutable_tokenize()->set_count_only(true);
  with_tool.mutable_tools()->set_tools_json(kProbeTool);
  auto told = co_await AskForTokens(model, std::move(with_tool));
  abilities.takes_tools = told.ok();
  v1::GenerateRequest thinking = TokensOfShortChat();
  thinking.set_template_arguments_json(kThinking);
  auto on = co_await AskForTokens(model, std::move(thinking));
  v1::GenerateRequest silent = TokensOfShortChat();
  silent.set_template_arguments_json(kNotThinking);
  auto off = co_await AskForTokens(model, std::move(silent));
  if (!on.ok() || on->token_ids().empty()) co_return abilities;
  // A switch changes the prompt. Models that always think begin it in the prompt.
  abilities.thinks = !off.ok() || !std::equal(on->token_ids().begin(), on->token_ids().end(),
                                              off->token_ids().begin(), off->token_ids().end());
  if (abilities.thinks) co_return abilities;
  v1::GenerateRequest brief = TokensOfShortChat();
  brief.set_template_arguments_json(kLittleThinking);
  auto little = co_await AskForTokens(model, std::move(brief));
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
  auto text = co_await AskForTokens(model, std::move(end));
  abilities.thinks = text.ok() && absl::StrContains(absl::AsciiStrToLower(text->text()), "think");
  co_return abilities;
}

net::awaitable<bool> HttpSession::ServeOllamaModel() {
  auto named = co_await ReadAside(ModelNamed);
  if (auto* error = std::get_if<ApiError>(&named)) co_return co_await SendError(std::move(*error));
  const std::string& id = std::get<std::string>(named);
  const std::vector<ServedModel> models = state_->options.aliases.WithAliases(Backend());
  const ServedModel* model = FindModel(models, id);
  if (model == nullptr) co_return co_await SendError(UnknownModel(id, Backend()));
  HttpReply reply;
  ModelAbilities abilities = {.takes_tools = false};
  if (!model->is_stopped) abilities = co_await AbilitiesOf(model->id);
  reply.body = OllamaModelBody(*model, abilities);
  co_return co_await SendReply(std::move(reply));
}

}  // namespace macrame::agentd
