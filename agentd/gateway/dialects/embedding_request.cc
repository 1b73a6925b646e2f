#include "agentd/gateway/dialects/embedding_request.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/fields/bounded_json.h"

namespace macrame::agentd {
namespace {

bool IsTrue(const Json& value) { return value.is_boolean() && value.get<bool>(); }

constexpr std::array kRefusedEmbeddingFields = {
    RefusedField{"messages", IsEmptyList, "embeddings are made of text: send 'input'"},
    RefusedField{"normalize", IsTrue, "embeddings always have length 1"},
    RefusedField{"embed_dtype", Never, "numbers are float32"},
    RefusedField{"truncate_prompt_tokens", Never, "inputs are never cut"},
    RefusedField{"truncate", IsFalse, "inputs are never cut"},
    RefusedField{"add_special_tokens", IsTrue, "send token ids to say each token yourself"},
    RefusedField{"stream", IsFalse, "embeddings come in one body"},
};

bool IsKnownEmbeddingField(absl::string_view name) {
  constexpr absl::string_view kNames[] = {"input", "encoding_format", "dimensions"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Reads one body; the first error stops it.
class EmbeddingRequestReader : public RequestFields {
 public:
  using RequestFields::RequestFields;

  std::variant<EmbeddingRequest, ApiError> Read() {
    RefuseFields(*this, kRefusedEmbeddingFields);
    ReadModel(*this, request_);
    request_.inputs = ReadPrompts(*this, "input", kInputsMax);
    if (request_.inputs.size() > kInputsMax) {
      Fail("input", "array_above_max_length",
           absl::StrCat("'input' may hold at most ", kInputsMax, " texts."));
    }
    ReadFormat();
    v1::EmbeddingOptions& options = *request_.generate.mutable_embedding();
    request_.generate.set_max_tokens(1);  // a rank that knows no embeddings answers no more
    const auto dimensions = Integer("dimensions", 1, std::numeric_limits<int32_t>::max());
    options.set_dimensions(static_cast<uint32_t>(dimensions.value_or(0)));
    ReadWhose(*this, request_);
    ListIgnored(*this, kRefusedEmbeddingFields, IsKnownEmbeddingField, request_);
    if (error_) return *error_;
    return std::move(request_);
  }

 private:
  void ReadFormat() {
    const Json* format = Find("encoding_format");
    if (format == nullptr) return;
    request_.as_base64 = *format == "base64";
    if (request_.as_base64 || *format == "float") return;
    Fail("encoding_format", "invalid_value", "'encoding_format' must be 'float' or 'base64'.");
  }

  EmbeddingRequest request_;
};

}  // namespace

std::variant<EmbeddingRequest, ApiError> ParseEmbeddingRequest(absl::string_view body,
                                                               size_t json_depth_max) {
  Json parsed;
  if (auto error = ParseJsonObject(body, json_depth_max, &parsed)) return *std::move(error);
  return ReadEmbeddingRequest(parsed);
}

std::variant<EmbeddingRequest, ApiError> ReadEmbeddingRequest(const Json& body) {
  return EmbeddingRequestReader(body).Read();
}

std::vector<v1::GenerateRequest> RequestsOfInputs(const EmbeddingRequest& request) {
  std::vector<v1::GenerateRequest> all;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    all.push_back(RequestOfPrompt(request.generate, request.inputs[i], i));
  }
  return all;
}

}  // namespace macrame::agentd
