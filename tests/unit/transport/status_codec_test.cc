#include "transport/status_codec.h"

#include <gtest/gtest.h>

#include "proto/reasons.h"

namespace macrame::transport {
namespace {

TEST(StatusCodecTest, OkStaysOk) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
}

TEST(StatusCodecTest, CodeMessageAndReasonSurviveTheWire) {
  v1::Reason reason = MakeReason("MEMORY_SHORT", "3 GiB are missing", "abc");
  reason.set_evidence("free: 1 GiB");
  const absl::Status sent = ReasonStatus(absl::StatusCode::kFailedPrecondition, reason);
  const absl::Status got = FromGrpcStatus(ToGrpcStatus(sent));
  EXPECT_EQ(got.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(got.message(), sent.message());
  EXPECT_EQ(ReasonOf(got).SerializeAsString(), reason.SerializeAsString());
}

TEST(StatusCodecTest, LongTextsAreCutBetweenCharacters) {
  v1::Reason reason = MakeReason("RANK_EXITED", std::string(1, 'x'));
  for (int i = 0; i < 4000; ++i) *reason.mutable_evidence() += "é";
  const absl::Status got =
      FromGrpcStatus(ToGrpcStatus(ReasonStatus(absl::StatusCode::kAborted, reason)));
  const v1::Reason cut = ReasonOf(got);
  EXPECT_EQ(cut.code(), "RANK_EXITED");
  EXPECT_LE(cut.evidence().size(), kReasonTextBytesMax + 3);
  EXPECT_GT(cut.evidence().size(), kReasonTextBytesMax - 3);
}

TEST(StatusCodecTest, DetailsThatDoNotParseAreDropped) {
  const absl::Status got =
      FromGrpcStatus(grpc::Status(grpc::StatusCode::ABORTED, "why", "\xff\xff\xff garbage"));
  EXPECT_EQ(got.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ReasonOf(got).code(), "INTERNAL");
  EXPECT_EQ(ReasonOf(got).message(), "why");
}

TEST(StatusCodecTest, RefusedIsToldFromOtherFailures) {
  EXPECT_TRUE(IsConnectionRefused(absl::UnavailableError("last error: Connection refused")));
  EXPECT_FALSE(IsConnectionRefused(absl::UnavailableError("Socket closed")));
  EXPECT_FALSE(IsConnectionRefused(absl::DeadlineExceededError("Connection refused")));
}

}  // namespace
}  // namespace macrame::transport
