#include "tests/unit/agentd/gateway/fake_backend.h"

#include <utility>

#include <google/protobuf/util/json_util.h>

#include "proto/reasons.h"
#include "tests/unit/agentd/gateway/scripted_model.h"

namespace macrame::agentd {
namespace {

const std::vector<std::string>& Words() {
  static const std::vector<std::string> words = {"RDMA", " lets", " a", " card", " write", "."};
  return words;
}

constexpr std::string_view kScript = "script-", kAgent = "agent-";

absl::Status ScriptedFailure(const std::string& deployment) {
  if (deployment == "busy") {
    return ReasonStatus(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "64 requests wait");
  }
  if (deployment == "loading") {
    return ReasonStatus(absl::StatusCode::kUnavailable, "NOT_READY", "'loading' is being loaded");
  }
  if (deployment == "broken") return absl::InternalError("open /var/secret/place failed");
  if (deployment == "narrow") {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, "PROMPT_TOO_LONG",
                        "the prompt has 9000 tokens, the context 4096");
  }
  return ReasonStatus(absl::StatusCode::kNotFound, "MODEL_NOT_LOADED", "no such deployment");
}

void AnswerAll(FakeCall& call) {
  const bool cut = call.request.max_tokens() > 0 && call.request.max_tokens() < Words().size();
  const size_t count = cut ? call.request.max_tokens() : Words().size();
  for (size_t i = 0; i < count; ++i) call.Text(Words()[i]);
  call.Finish(cut ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_STOP, 11,
              static_cast<uint32_t>(count));
  call.Done(absl::OkStatus());
}

void TellTokens(FakeCall& call) {
  v1::GenerateChunk chunk;
  chunk.set_finish_reason(v1::FINISH_REASON_STOP);
  std::string text = call.request.prompt();
  for (const v1::ChatMessage& message : call.request.messages()) text += message.content();
  if (call.request.tokenize().detokenize()) {
    for (const int32_t id : call.request.prompt_token_ids()) text.push_back(static_cast<char>(id));
    chunk.set_text(text);
  } else if (!call.request.tokenize().count_only()) {
    for (const char byte : text) chunk.add_token_ids(static_cast<unsigned char>(byte));
  }
  chunk.set_prompt_tokens(static_cast<uint32_t>(text.size()));
  call.Chunk(chunk);
  call.Done(absl::OkStatus());
}

void Embed(FakeCall& call) {
  v1::GenerateChunk chunk;
  chunk.add_embedding(0.6F);
  chunk.add_embedding(0.8F);
  chunk.set_prompt_tokens(3);
  chunk.set_finish_reason(v1::FINISH_REASON_STOP);
  call.Chunk(chunk);
  call.Done(absl::OkStatus());
}

void Mirror(FakeCall& call) {
  std::string text;
  const auto written = google::protobuf::util::MessageToJsonString(call.request, &text);
  v1::GenerateChunk last;
  for (const std::string& stop : call.request.stop()) {
    const size_t at = text.find(stop);
    if (at == std::string::npos) continue;
    text.resize(at);
    last.set_stop_string(stop);
  }
  call.Text(written.ok() ? text : "the request can't be written");
  last.set_finish_reason(v1::FINISH_REASON_STOP);
  last.set_prompt_tokens(11);
  last.set_cached_tokens(4);
  last.set_completion_tokens(5);
  call.Chunk(last);
  call.Done(absl::OkStatus());
}

}  // namespace

FakeCall::FakeCall(v1::GenerateRequest the_request, InferenceBackend::ChunkCallback on_chunk,
                   InferenceBackend::DoneCallback on_done)
    : request(std::move(the_request)),
      on_chunk_(std::move(on_chunk)),
      on_done_(std::move(on_done)) {}

void FakeCall::Cancel() {
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
  }
  Done(absl::CancelledError("cancelled"));
}

void FakeCall::Chunk(const v1::GenerateChunk& chunk) {
  InferenceBackend::ChunkCallback on_chunk;
  {
    std::lock_guard lock(mutex_);
    on_chunk = on_chunk_;
  }
  if (on_chunk) on_chunk(chunk);
}

void FakeCall::Text(const std::string& text) {
  v1::GenerateChunk chunk;
  chunk.set_text(text);
  Chunk(chunk);
}

void FakeCall::BeginAgain() {
  InferenceBackend::ChunkCallback on_chunk;
  {
    std::lock_guard lock(mutex_);
    on_chunk = on_chunk_;
  }
  if (on_chunk) on_chunk.BeginAgain();
}

bool FakeCall::CanBeginAgain() const {
  std::lock_guard lock(mutex_);
  return on_chunk_.can_begin_again();
}

void FakeCall::Progress(uint32_t computed, uint32_t total, bool is_queued) {
  v1::GenerateChunk chunk;
  chunk.mutable_progress()->set_is_queued(is_queued);
  chunk.mutable_progress()->set_prompt_tokens(total);
  chunk.mutable_progress()->set_computed_tokens(computed);
  Chunk(chunk);
}

void FakeCall::Finish(v1::FinishReason reason, uint32_t prompt_tokens, uint32_t completion_tokens) {
  v1::GenerateChunk chunk;
  chunk.set_finish_reason(reason);
  chunk.set_prompt_tokens(prompt_tokens);
  chunk.set_completion_tokens(completion_tokens);
  Chunk(chunk);
}

void FakeCall::Done(const absl::Status& status) {
  InferenceBackend::DoneCallback on_done;
  {
    std::lock_guard lock(mutex_);
    on_done = std::exchange(on_done_, nullptr);
    on_chunk_ = nullptr;
  }
  if (on_done) on_done(status);
}

bool FakeCall::WaitForCancel(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return cancelled_; });
}

bool FakeCall::cancelled() const {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

FakeBackend::FakeBackend() = default;

FakeBackend::FakeBackend(std::string script) : script_(std::move(script)) {}

FakeBackend::~FakeBackend() {
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<GenerateCall> FakeBackend::StartGenerate(v1::GenerateRequest request,
                                                         ChunkCallback on_chunk,
                                                         DoneCallback on_done) {
  auto call =
      std::make_shared<FakeCall>(std::move(request), std::move(on_chunk), std::move(on_done));
  const std::string deployment = call->request.deployment();
  {
    std::lock_guard lock(mutex_);
    calls_.push_back(call);
    if (deployment == "threaded") threads_.emplace_back([call] { AnswerAll(*call); });
    changed_.notify_all();
  }
  const bool has_failure = deployment == "busy" || deployment == "loading" ||
                           deployment == "broken" || deployment == "narrow" || deployment == "gone";
  if (call->request.has_tokenize() && deployment != "manual" && !has_failure) {
    TellTokens(*call);
  } else if (deployment == "mirror") {
    Mirror(*call);
  } else if (deployment == "embedder") {
    Embed(*call);
  } else if (deployment == "tiny") {
    AnswerAll(*call);
  } else if (deployment.starts_with(kScript)) {
    for (const auto& chunk : ScriptedAnswer(deployment.substr(kScript.size()), call->request)) {
      call->Chunk(chunk);
    }
    call->Done(absl::OkStatus());
  } else if (deployment.starts_with(kAgent)) {
    const std::string family = deployment.substr(kAgent.size());
    for (const auto& chunk : AnswerByScript(family, script_, call->request)) call->Chunk(chunk);
    call->Done(absl::OkStatus());
  } else if (deployment != "manual" && deployment != "threaded") {
    call->Done(ScriptedFailure(deployment));
  }
  return call;
}

std::vector<ServedModel> FakeBackend::ListModels() {
  return {{"manual", 1'700'000'001, 4096},
          {"mlx-community/Tiny-4bit", 1'700'000'000, 2048},
          {"tiny", 1'700'000'002, 4096}};
}

std::shared_ptr<FakeCall> FakeBackend::WaitForCall(size_t index) {
  std::unique_lock lock(mutex_);
  const bool there =
      changed_.wait_for(lock, std::chrono::seconds(5), [&] { return calls_.size() > index; });
  return there ? calls_[index] : nullptr;
}

size_t FakeBackend::calls() const {
  std::lock_guard lock(mutex_);
  return calls_.size();
}

}  // namespace macrame::agentd
