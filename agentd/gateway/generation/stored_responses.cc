#include "agentd/gateway/generation/stored_responses.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/access/response_store.h"
#include "agentd/gateway/dialects/input_items.h"
#include "agentd/gateway/dialects/response_answer.h"
#include "agentd/gateway/dialects/response_request.h"
#include "agentd/gateway/fields/sampling_fields.h"
#include "agentd/gateway/generation/answer_requests.h"
#include "agentd/gateway/http/asio_names.h"

namespace macrame::agentd {

// Coroutines that have one in their frame can be seen from outside, so its type has a name there.
struct StoredText {
  ResponseStore::Text text;
  uint64_t since_unix_ms = 0;  // of its turn
};

namespace {

constexpr absl::string_view kInputItems = "/input_items";

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

std::string DeletedBody(const std::string& id) {
  return Dump({{"id", id}, {"object", "response"}, {"deleted", true}});
}

// One text of a stored response, once there is room for it. Nothing of the response is held while
// that is waited for. `is_previous`: a request goes on from it.
net::awaitable<std::variant<StoredText, ApiError>> TakeStored(
    Exchange& exchange, std::string id, ResponseStore::Text ResponseStore::Turn::*which,
    bool is_previous) {
  const std::string tenant = exchange.WhoAsks().tenant;
  StoredAnswers& answers = exchange.state()->access->answers();
  auto turn = answers.Find(id, tenant, GatewayUnixMs());
  if (turn.has_value()) {
    const size_t bytes = ((*turn).*which)->size();
    turn.reset();
    std::optional<ApiError> no_room = co_await exchange.RoomForStored(bytes);
    if (no_room.has_value()) co_return *std::move(no_room);
    turn = answers.Find(id, tenant, GatewayUnixMs());
  }
  if (!turn.has_value()) co_return NotStored(id, answers.MayStore(tenant), is_previous);
  co_return StoredText{std::move((*turn).*which), turn->since_unix_ms};
}

}  // namespace

net::awaitable<bool> AnswerResponse(Exchange& exchange) {
  const Asker asker = exchange.WhoAsks();
  const std::string previous = co_await ReadAside(exchange, PreviousResponseOf);
  StoredAnswers& answers = exchange.state()->access->answers();
  const bool may_store = answers.MayStore(asker.tenant);
  const uint64_t begun = answers.Begin();
  StoredText before{std::make_shared<const std::string>()};
  if (!previous.empty()) {
    auto found = co_await TakeStored(exchange, previous, &ResponseStore::Turn::messages, true);
    if (auto* error = std::get_if<ApiError>(&found)) {
      co_return co_await exchange.SendError(std::move(*error));
    }
    before = std::move(std::get<StoredText>(found));
  }
  // Made before it is waited for: no lambda stands in this coroutine's frame.
  std::function<std::variant<ResponseRequest, ApiError>(absl::string_view, size_t)> read =
      [&before, may_store](absl::string_view body, size_t depth) {
        return ParseResponseRequest(body, depth, *before.text, may_store);
      };
  auto parsed = co_await ReadAside(exchange, std::move(read));
  before.text.reset();  // the request has it
  if (auto* error = std::get_if<ApiError>(&parsed))
    co_return co_await exchange.SendError(std::move(*error));
  ResponseRequest& request = std::get<ResponseRequest>(parsed);
  AnswerHead head = HeadOf(exchange, request.chat, AnswerForm::kResponse);
  head.response = std::make_shared<ResponseTurn>();
  head.response->echo = std::move(request.echo);
  head.response->messages = std::move(request.messages);
  head.response->namespaced = std::move(request.namespaced);
  if (request.is_kept) {
    head.response->keep = [state = exchange.state(), asker, begun, since = before.since_unix_ms,
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
  ModelAnswer answer(exchange, std::move(head));
  co_return co_await answer.Send(RequestsOfChoices(request.chat.generate, 1), request.chat.stream);
}

net::awaitable<bool> AnswerStoredResponse(Exchange& exchange) {
  std::string id = exchange.Name();
  const std::string tenant = exchange.WhoAsks().tenant;
  const auto& request = exchange.request();
  StoredAnswers& answers = exchange.state()->access->answers();
  HttpReply reply;
  if (request.method() == http::verb::delete_) {
    if (absl::EndsWith(id, kInputItems)) {
      co_return co_await exchange.SendError(
          HttpError(405, "Items are deleted with their response.", "method_not_allowed"));
    }
    if (!answers.Erase(id, tenant, GatewayUnixMs())) {
      co_return co_await exchange.SendError(NotStored(id, answers.MayStore(tenant)));
    }
    reply.body = DeletedBody(id);
    co_return co_await exchange.SendReply(std::move(reply));
  }
  if (Plain(request.target()).find("stream=true") != absl::string_view::npos) {
    co_return co_await exchange.SendError(
        BadRequest("'stream' can't be honoured: what is stored is whole; leave it out.", "stream",
                   "unsupported_parameter"));
  }
  const bool is_of_items = absl::EndsWith(id, kInputItems);
  if (is_of_items) id.resize(id.size() - kInputItems.size());
  const auto which = is_of_items ? &ResponseStore::Turn::messages : &ResponseStore::Turn::body;
  auto found = co_await TakeStored(exchange, id, which, /*is_previous=*/false);
  if (auto* error = std::get_if<ApiError>(&found))
    co_return co_await exchange.SendError(std::move(*error));
  reply.shared_body = std::move(std::get<StoredText>(found).text);
  if (is_of_items) {
    auto page = InputItemsBody(id, *reply.shared_body, QueryOf(request));
    if (auto* error = std::get_if<ApiError>(&page))
      co_return co_await exchange.SendError(std::move(*error));
    reply.body = std::move(std::get<std::string>(page));
    reply.shared_body.reset();
  }
  co_return co_await exchange.SendReply(std::move(reply));
}

}  // namespace macrame::agentd
