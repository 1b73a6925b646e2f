#include "agentd/services/webhook.h"

#include "absl/strings/str_cat.h"
#include "agentd/services/http_post.h"

namespace macrame::agentd {
namespace {

constexpr int kOkFirst = 200, kOkLast = 299;

HttpFields FieldsOf(std::string authorization) {
  HttpFields fields;
  if (!authorization.empty()) fields.emplace_back("Authorization", std::move(authorization));
  return fields;
}

}  // namespace

struct Webhook::Parts {
  HttpPost post;
  const WebhookOptions options;

  absl::Status Try(const std::string& json) {
    const absl::StatusOr<HttpPostAnswer> answer = post.Try(json, options.timeout);
    if (!answer.ok()) return answer.status();
    if (answer->status >= kOkFirst && answer->status <= kOkLast) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("it answers with HTTP ", answer->status));
  }

  absl::Status Deliver(const std::string& json) {
    absl::Status status = Try(json);
    for (const Duration pause : options.pauses) {
      if (status.ok() || !post.Pause(pause)) return status;
      status = Try(json);
    }
    return status;
  }
};

Webhook::Webhook(transport::Dispatcher& dispatcher, WebUrl url, std::string authorization,
                 WebhookOptions options)
    : dispatcher_(dispatcher),
      parts_(new Parts{HttpPost(std::move(url), FieldsOf(std::move(authorization))),
                       std::move(options)}),
      worker_(std::make_unique<transport::WorkerThread>()) {}

Webhook::~Webhook() {
  parts_->post.Stop();
  worker_.reset();
}

void Webhook::Post(std::string json, Done on_done) {
  // Kept on this side: what it holds belongs to the owner thread.
  auto kept = std::make_shared<Done>(std::move(on_done));
  const bool added = worker_->Add([&dispatcher = dispatcher_, parts = parts_, kept,
                                   weak = std::weak_ptr<Parts>(parts_), json = std::move(json)] {
    const absl::Status status = parts->Deliver(json);
    dispatcher.Post([kept, weak, status] {
      if (!weak.expired()) (*kept)(status);
    });
  });
  if (!added) (*kept)(absl::ResourceExhaustedError("too many messages wait"));
}

}  // namespace macrame::agentd
