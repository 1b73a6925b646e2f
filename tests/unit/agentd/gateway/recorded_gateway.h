#pragma once

// A gateway before a FakeBackend, and the record that it tells of each request.

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "agentd/gateway/gateway.h"
#include "tests/unit/agentd/gateway/fake_backend.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"

namespace macrame::agentd {

class RecordedGateway : public ::testing::Test {
 protected:
  void Start(GatewayOptions options = {}) {
    options.port = 0;
    options.on_request = [this](const RequestRecord& record) {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
      changed_.notify_all();
    };
    auto gateway = Gateway::Start(options, &backend_);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
  }
  RawResponse Ask(const std::string& bytes) {
    RawHttpClient client(gateway_->port());
    client.Send(bytes);
    return client.ReadResponse();
  }
  // The record of the request with this number, from 0; it comes when the answer is over, and
  // behind its spans.
  RequestRecord Record(size_t index) {
    std::unique_lock lock(mutex_);
    const bool there =
        changed_.wait_for(lock, std::chrono::seconds(5), [&] { return records_.size() > index; });
    EXPECT_TRUE(there) << "no record of request " << index;
    return there ? records_[index] : RequestRecord();
  }

  FakeBackend backend_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RequestRecord> records_;
  // The last to be made: it tells of requests to the end. Fixtures with members that it writes to
  // let it go in their TearDown.
  std::unique_ptr<Gateway> gateway_;
};

}  // namespace macrame::agentd
