#pragma once

// Messages to gRPC's byte buffers and back; internal to transport/.

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

namespace macrame::transport {

inline grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

inline bool FromByteBuffer(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message) {
  grpc::ByteBuffer same_bytes(buffer);
  grpc::ProtoBufferReader reader(&same_bytes);
  return reader.status().ok() && message->ParseFromZeroCopyStream(&reader);
}

}  // namespace macrame::transport
