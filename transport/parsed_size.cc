#include "transport/parsed_size.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace macrame::transport {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

// Lists double as they grow.
constexpr size_t kGrowth = 2;
// What an allocation has before it, and loses to rounding.
constexpr size_t kAllocationBytes = 16;
constexpr size_t kPlaceBytes = kGrowth * sizeof(void*);
constexpr size_t kUnknownBytes = kGrowth * sizeof(google::protobuf::UnknownField);
// What a message has beside its own fields as soon as it has an unknown one.
constexpr size_t kUnknownListBytes =
    sizeof(void*) + sizeof(google::protobuf::UnknownFieldSet) + kAllocationBytes;
// A node of a map with its place in the table, beside texts and messages in it.
constexpr size_t kMapEntryBytes = 192;
constexpr size_t kShortTextBytes = 15;  // they lie in std::string itself
constexpr int kDepthMax = 100;          // the parser's own

bool IsNumber(const FieldDescriptor& field) {
  return field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE &&
         field.cpp_type() != FieldDescriptor::CPPTYPE_STRING;
}

WireFormatLite::WireType WireTypeOf(const FieldDescriptor& field) {
  return WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field.type()));
}

class Count {
 public:
  explicit Count(google::protobuf::io::ZeroCopyInputStream* bytes) : in_(bytes) {}

  // False: it is no message, or is_over().
  bool Message(const Descriptor& type, size_t size) {
    Take(BytesOf(type));
    return Part(type, size, 0);
  }
  bool is_over() const { return taken_ > kParsedBytesMax; }
  size_t taken() const { return taken_; }

 private:
  // What fields belong to.
  struct Owner {
    const Descriptor* type;  // null where nothing of it is known
    int group;               // its number, where it ends with one; 0: with its bytes
    int depth;               // 0: the message itself
    bool has_unknown = false;
  };

  void Take(size_t bytes) { taken_ += bytes; }
  void TakeUnknown(Owner& owner) {
    Take(kUnknownBytes + (owner.has_unknown ? 0 : kUnknownListBytes));
    owner.has_unknown = true;
  }
  void TakeText(size_t length) {
    Take(sizeof(std::string) + kAllocationBytes);
    if (length > kShortTextBytes) Take(length + kAllocationBytes);
  }
  // Of a message without fields.
  size_t BytesOf(const Descriptor& type) {
    const auto [at, is_new] = sizes_.try_emplace(&type, 0);
    if (is_new) {
      auto* const factory = google::protobuf::MessageFactory::generated_factory();
      at->second = factory->GetPrototype(&type)->SpaceUsedLong() + kAllocationBytes;
    }
    return at->second;
  }

  bool Part(const Descriptor& type, size_t size, int depth) {
    const auto limit = in_.PushLimit(static_cast<int>(size));
    const bool is_whole = Fields(Owner{&type, 0, depth});
    in_.PopLimit(limit);
    return is_whole;
  }
  bool Fields(Owner owner) {
    if (owner.depth > kDepthMax) return false;
    while (!is_over()) {
      const uint32_t tag = in_.ReadTag();
      if (tag == 0) return owner.group == 0 && in_.ConsumedEntireMessage();
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      const auto wire = WireFormatLite::GetTagWireType(tag);
      if (number == 0) return false;
      if (wire == WireFormatLite::WIRETYPE_END_GROUP) return number == owner.group;
      const FieldDescriptor* field =
          owner.type != nullptr ? owner.type->FindFieldByNumber(number) : nullptr;
      if (!Field(owner, field, wire, number)) return false;
    }
    return false;
  }
  bool Field(Owner& owner, const FieldDescriptor* field, WireFormatLite::WireType wire,
             int number) {
    switch (wire) {
      case WireFormatLite::WIRETYPE_VARINT: {
        uint64_t value = 0;
        TakeNumber(owner, field, wire);
        return in_.ReadVarint64(&value);
      }
      case WireFormatLite::WIRETYPE_FIXED64:
        TakeNumber(owner, field, wire);
        return in_.Skip(8);
      case WireFormatLite::WIRETYPE_FIXED32:
        TakeNumber(owner, field, wire);
        return in_.Skip(4);
      case WireFormatLite::WIRETYPE_START_GROUP:
        TakeUnknown(owner);
        Take(sizeof(google::protobuf::UnknownFieldSet) + kAllocationBytes);
        return Fields(Owner{nullptr, number, owner.depth + 1});
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return Delimited(owner, field);
      default:
        return false;
    }
  }
  // What is not written as its field's numbers are is kept as unknown.
  void TakeNumber(Owner& owner, const FieldDescriptor* field, WireFormatLite::WireType wire) {
    const bool is_known = field != nullptr && IsNumber(*field) && WireTypeOf(*field) == wire;
    if (!is_known) return TakeUnknown(owner);
    if (field->is_repeated()) Take(kUnknownBytes);  // alone: a list of it begins with eight places
  }
  bool Delimited(Owner& owner, const FieldDescriptor* field) {
    uint32_t length = 0;
    if (!in_.ReadVarint32(&length)) return false;
    if (length > static_cast<uint32_t>(in_.BytesUntilLimit())) return false;
    if (field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const Descriptor& type = *field->message_type();
      Take(field->is_map() ? kMapEntryBytes : kPlaceBytes + BytesOf(type));
      return Part(type, length, owner.depth + 1);
    }
    if (field != nullptr && field->is_repeated() && IsNumber(*field)) {
      return Numbers(*field, length);
    }
    if (!in_.Skip(static_cast<int>(length))) return false;
    const bool is_text = field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    if (!is_text) TakeUnknown(owner);
    if (is_text && field->is_repeated()) Take(kPlaceBytes);
    TakeText(length);
    return true;
  }
  // One after the other, without tags.
  bool Numbers(const FieldDescriptor& field, uint32_t length) {
    const auto wire = WireTypeOf(field);
    Take(kAllocationBytes);
    if (wire != WireFormatLite::WIRETYPE_VARINT) {
      Take(kGrowth * length);
      return in_.Skip(static_cast<int>(length));
    }
    const bool is_wide = field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 ||
                         field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64;
    while (length > 0) {
      const void* data = nullptr;
      int size = 0;
      if (!in_.GetDirectBufferPointer(&data, &size)) return false;
      const size_t here = std::min(static_cast<size_t>(size), size_t{length});
      const auto* begin = static_cast<const uint8_t*>(data);
      const auto ends =
          std::count_if(begin, begin + here, [](uint8_t byte) { return byte < 0x80; });
      Take(kGrowth * (is_wide ? 8 : 4) * static_cast<size_t>(ends));
      if (!in_.Skip(static_cast<int>(here))) return false;
      length -= static_cast<uint32_t>(here);
    }
    return true;
  }

  google::protobuf::io::CodedInputStream in_;
  std::unordered_map<const Descriptor*, size_t> sizes_;
  size_t taken_ = 0;
};

}  // namespace

std::optional<size_t> ParsedBytes(const Descriptor& type,
                                  google::protobuf::io::ZeroCopyInputStream* bytes, size_t size) {
  Count count(bytes);
  if (!count.Message(type, size) && !count.is_over()) return std::nullopt;
  return count.taken();
}

}  // namespace macrame::transport
