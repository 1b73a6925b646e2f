#pragma once

// An InferenceBackend that follows a script. What it does hangs on the deployment's name:
//   "tiny"     answers at once, from within StartGenerate
//   "manual"   waits for the test to call Chunk and Done on the call
//   "threaded" answers word by word from a thread of its own
//   "busy", "loading", "broken", "narrow"  fail with QUEUE_FULL, NOT_READY, an internal error with
//   a
//              path in it, PROMPT_TOO_LONG
//   "mirror"   answers with the request that it got, as JSON; stop strings end it
//   "embedder" gives each text the same direction
//   "script-…" plays an agent's turns in the words of a family: scripted_model.h
//   "agent-…"  does so by the script that the backend was given
//   others     MODEL_NOT_LOADED
// Who is asked for tokens tells that each byte of a prompt or message is one.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agentd/gateway/base/inference_backend.h"

namespace macrame::agentd {

class FakeCall : public GenerateCall {
 public:
  FakeCall(v1::GenerateRequest request, InferenceBackend::ChunkCallback on_chunk,
           InferenceBackend::DoneCallback on_done);
  void Cancel() override;
  void Chunk(const v1::GenerateChunk& chunk);
  void Text(const std::string& text);
  // What came so far is dropped; not to be called where the gateway can't begin again.
  void BeginAgain();
  bool CanBeginAgain() const;
  void Progress(uint32_t computed, uint32_t total, bool is_queued = false);
  void Finish(v1::FinishReason reason, uint32_t prompt_tokens, uint32_t completion_tokens);
  void Done(const absl::Status& status);
  bool WaitForCancel(std::chrono::milliseconds limit);
  bool cancelled() const;
  const v1::GenerateRequest request;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  InferenceBackend::ChunkCallback on_chunk_;
  InferenceBackend::DoneCallback on_done_;
  bool cancelled_ = false;
};

class FakeBackend : public InferenceBackend {
 public:
  FakeBackend();
  explicit FakeBackend(std::string script);  // for "agent-…"
  ~FakeBackend() override;
  std::shared_ptr<GenerateCall> StartGenerate(v1::GenerateRequest request, ChunkCallback on_chunk,
                                              DoneCallback on_done) override;
  std::vector<ServedModel> ListModels() override;

  // The call with this number (from 0), as soon as there is one; null after 5 s.
  std::shared_ptr<FakeCall> WaitForCall(size_t index);
  size_t calls() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<FakeCall>> calls_;
  std::vector<std::thread> threads_;
  const std::string script_ = R"({"turns": [], "replies": [], "last": "no script"})";
};

}  // namespace macrame::agentd
