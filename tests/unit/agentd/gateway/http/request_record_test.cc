#include "agentd/gateway/http/request_record.h"

#include <gtest/gtest.h>

#include "agentd/cores/log_guard.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;

RequestRecord Sample() {
  RequestRecord record;
  record.method = "POST";
  record.route = "/v1/chat/completions";
  record.status = 200;
  record.bytes_received = 97;
  record.bytes_sent = 512;
  record.client_address = "127.0.0.1";
  record.request_id = "req_1";
  record.model = "qwen3-4b";
  record.begun = RequestRecord::Clock::time_point() + milliseconds(1000);
  record.ended = record.begun + milliseconds(41);
  return record;
}

TEST(AccessLine, SaysWhatWasAskedAndHowItWent) {
  RequestRecord record = Sample();
  record.first_byte = record.begun + milliseconds(12);
  EXPECT_EQ(AccessLine(record),
            "POST /v1/chat/completions 200 sent=512 received=97 total_ms=41.0 first_byte_ms=12.0 "
            "client=127.0.0.1 request_id='req_1' model='qwen3-4b'");
  record = Sample();
  record.client_gone = true;
  record.model.clear();
  EXPECT_EQ(AccessLine(record),
            "POST /v1/chat/completions 200 sent=512 received=97 total_ms=41.0 client=127.0.0.1 "
            "request_id='req_1' client_gone");
}

TEST(AccessLine, StaysOneLineWhateverAModelIsCalled) {
  RequestRecord record = Sample();
  record.model = "a\nPOST /forged 200 \"x\"";
  EXPECT_EQ(AccessLine(record).find('\n'), std::string::npos);
  EXPECT_NE(AccessLine(record).find(R"(model='a\nPOST /forged 200 \"x\"')"), std::string::npos)
      << AccessLine(record);
  record.model = std::string(100'000, 'm');
  EXPECT_LT(AccessLine(record).size(), 400u);
}

TEST(AccessLine, WordsThatAClientChoseMakeNoKindOfTheirOwn) {
  const std::string kind = KindOfLine(AccessLine(Sample()));
  RequestRecord record = Sample();
  for (const char* word : {"ghijk", "it's", "'", "\\'", "a'b'c", "' x", "\\", "\n", "\xff\xc0"}) {
    record.model = word;
    EXPECT_EQ(KindOfLine(AccessLine(record)), kind) << AccessLine(record);
    record.request_id = word;
    EXPECT_EQ(KindOfLine(AccessLine(record)), kind) << AccessLine(record);
  }
  record.client_address = "2001:db8:face::dead:beef";
  RequestRecord other = record;
  other.client_address = "fe80::cafe:abcd:add";
  EXPECT_EQ(KindOfLine(AccessLine(record)), KindOfLine(AccessLine(other)));
}

TEST(AccessLine, MethodsThatHttpDoesNotKnowAreOther) {
  EXPECT_EQ(MethodName("GET"), "GET");
  EXPECT_EQ(MethodName("get"), "other");
  EXPECT_EQ(MethodName(std::string(5000, 'X')), "other");
}

TEST(FirstByteOverhead, IsTheGatewaysPartOnBothSidesOfTheModel) {
  RequestRecord record = Sample();
  EXPECT_FALSE(FirstByteOverhead(record).has_value());
  record.read = record.begun + milliseconds(5);  // the client was slow: not the gateway's
  record.handed_on = record.begun + milliseconds(7);
  record.first_piece = record.begun + milliseconds(300);
  record.first_byte = record.begun + milliseconds(301);
  EXPECT_EQ(FirstByteOverhead(record), milliseconds(3));
}

}  // namespace
}  // namespace macrame::agentd
