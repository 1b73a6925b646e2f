#include "runtime/second_engine/worker_stack.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/rank_words.h"
#include "proto/reasons.h"
#include "runtime/model/mlx/device_memory.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;
using nlohmann::json;

constexpr size_t kRowsHead = 2 * sizeof(uint64_t);  // memory that it holds, width
constexpr int kVocabularyMax = 1 << 24;

void Put(std::string& out, uint64_t number) {
  const auto word = static_cast<uint32_t>(number);
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>((word >> shift) & 0xff);
}

uint64_t WordAt(const std::string& bytes, size_t at) {
  uint64_t word = 0;
  for (size_t i = 0; i < sizeof(word); ++i) {
    word |= uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return word;
}

uint64_t NumberIn(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerStack>> WorkerStack::Start(const std::string& python,
                                                                std::string_view script) {
  auto process = WorkerProcess::Start(python, script, /*shows_errors=*/true);
  if (!process.ok()) return process.status();
  std::unique_ptr<WorkerStack> stack(new WorkerStack(*std::move(process)));
  const auto hello = stack->Expect('H', kWorkerStartLimit);
  if (!hello.ok()) return hello.status();
  return stack;
}

absl::Status WorkerStack::Garbled() const {
  return ReasonStatus(absl::StatusCode::kInternal, reasons::kEngineFailed,
                      absl::StrCat(Name(), " gave an answer that can't be read"));
}

absl::StatusOr<std::string> WorkerStack::Expect(char kind, std::chrono::milliseconds limit) {
  auto frame = process_->Receive(limit);
  if (!frame.ok()) return frame.status();
  if (frame->kind != kind) return Garbled();
  return std::move(frame->payload);
}

absl::Status WorkerStack::Connect(const WorkerPlace& place) {
  place_ = place;
  json order = {{"folder", place.folder},
                {"rank", place.rank},
                {"world", place.world_size},
                {"tp", place.tp},
                {"pp", place.pp},
                {"backend", NameOf(place.backend)},
                {"positions", place.positions},
                {"cache_bytes", kCacheBytesMax},
                {"wired_bytes", place.wired_bytes},
                {"addresses", place.addresses}};
  if (place.backend == Backend::kJaccl) {
    order["devices"] = json::parse(place.devices, nullptr, false);
    order["rendezvous"] = place.rendezvous;
    order["topology"] = place.topology;
  }
  const absl::Status sent =
      process_->Send('C', order.dump(-1, ' ', false, json::error_handler_t::replace));
  return sent.ok() ? Expect('C').status() : sent;
}

absl::Status WorkerStack::Load(const std::function<void(uint64_t, uint64_t)>& on_bytes) {
  const absl::Status sent = process_->Send('L', "");
  if (!sent.ok()) return sent;
  while (true) {
    const auto frame = process_->Receive({});
    if (!frame.ok()) return frame.status();
    const json told = json::parse(frame->payload, nullptr, /*allow_exceptions=*/false);
    if (!told.is_object() || (frame->kind != 'P' && frame->kind != 'L')) return Garbled();
    if (frame->kind == 'P') {
      on_bytes(NumberIn(told, "loaded"), NumberIn(told, "total"));
      continue;
    }
    loaded_.bytes = NumberIn(told, "bytes");
    loaded_.active = NumberIn(told, "active");
    const uint64_t vocabulary = NumberIn(told, "vocab");
    if (vocabulary == 0 || vocabulary > kVocabularyMax) return Garbled();
    loaded_.vocab_size = static_cast<int>(vocabulary);
    return absl::OkStatus();
  }
}

absl::Status WorkerStack::InStep(absl::Status failed) const {
  const v1::Reason reason = ReasonOf(failed);
  // MLX ends a process whose neighbour is gone with an exception that names the backend, or SIGABRT
  // where nothing catches it. All else is the worker's own.
  const std::string_view text = reason.message();
  const bool is_link = absl::EndsWith(reason.message(), "signal 6") ||
                       text.find("[ring]") != text.npos || text.find("[jaccl]") != text.npos ||
                       text.find("istributed") != text.npos;
  if (place_.world_size == 1 || !is_link) return failed;
  return LinkFailed(reason.message());
}

absl::StatusOr<WorkerStack::Order> WorkerStack::OrderOf(const ForwardStep& step) const {
  Order order;
  Put(order.bytes, step.closed_slots.size());
  for (const uint32_t slot : step.closed_slots) Put(order.bytes, slot);
  Put(order.bytes, step.segments.size());
  for (const Segment& segment : step.segments) {
    const LogitRows wanted = segment.logit_rows;
    if (wanted != LogitRows::kNone && wanted != LogitRows::kLast && wanted != LogitRows::kAll) {
      return absl::UnimplementedError("mlx-lm tells no hidden states");
    }
    order.rows += wanted == LogitRows::kAll    ? segment.tokens.size()
                  : wanted == LogitRows::kLast ? 1
                                               : 0;
    Put(order.bytes, segment.slot);
    Put(order.bytes, segment.begin);
    Put(order.bytes, segment.salt >> 32);
    Put(order.bytes, segment.salt & 0xffffffff);
    Put(order.bytes, static_cast<uint64_t>(wanted));
    Put(order.bytes, segment.tokens.size());
    for (const int32_t token : segment.tokens) {
      if (token < 0 || token >= loaded_.vocab_size) {
        return absl::InternalError(absl::StrCat("token ", token, " of ", loaded_.vocab_size));
      }
      Put(order.bytes, static_cast<uint64_t>(token));
    }
  }
  return order;
}

absl::Status WorkerStack::Begin(const ForwardStep& step) {
  const absl::StatusOr<Order> order = OrderOf(step);
  if (!order.ok()) return order.status();
  const size_t rows = order->rows;
  const absl::Status sent = process_->Send('S', order->bytes);
  if (!sent.ok()) return InStep(sent);
  auto answer = process_->Receive({});
  while (answer.ok() && answer->kind == 'P') {
    if (on_progress_) on_progress_();
    answer = process_->Receive({});
  }
  if (!answer.ok()) return InStep(answer.status());
  rows_ = std::move(answer->payload);
  if (answer->kind != 'R' || rows_.size() < kRowsHead) return Garbled();
  const uint64_t active = WordAt(rows_, 0);
  caches_ = active - std::min(active, loaded_.active);
  if (place_.rank != 0 || rows == 0) return absl::OkStatus();
  const uint64_t width = WordAt(rows_, sizeof(uint64_t));
  if (width != static_cast<uint64_t>(loaded_.vocab_size) ||
      rows_.size() != kRowsHead + rows * width * sizeof(float)) {
    return ReasonStatus(
        absl::StatusCode::kInternal, reasons::kEngineFailed,
        absl::StrCat(Name(), " gives ", width, " logits of a vocabulary of ", loaded_.vocab_size));
  }
  return absl::OkStatus();
}

mx::array WorkerStack::Embed(std::span<const int32_t>) { return mx::zeros({0}, mx::float32); }

mx::array WorkerStack::Run(const mx::array& hidden, const ForwardStep&) { return hidden; }

mx::array WorkerStack::Logits(const mx::array& hidden, std::span<const int32_t> rows) {
  if (place_.rank != 0) return hidden;
  std::vector<float> values(rows.size() * static_cast<size_t>(loaded_.vocab_size));
  std::memcpy(values.data(), rows_.data() + kRowsHead, values.size() * sizeof(float));
  return mx::array(values.data(), {static_cast<int>(rows.size()), loaded_.vocab_size});
}

mx::array WorkerStack::Hidden(const mx::array&, std::span<const int32_t>) {
  MACRAME_CHECK(false) << "mlx_lm's worker gives no hidden states";
  return mx::array(0.0F);
}

}  // namespace macrame::runtime::engine
