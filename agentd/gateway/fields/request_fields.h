#pragma once

// The fields of a request's body, one by one, each held to its type and range. The first error
// stops it: what is read behind it is as if it were not there. Pure.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/fields/bounded_json.h"

namespace macrame::agentd {

// The number as an integer, also where it is written as a float without a fraction (256.0), as some
// languages write whole numbers. Null for everything else, and for floats beyond 2^53: these may be
// another number than the one that was written.
Json WholeNumber(const Json& value);

class RequestFields {
 public:
  // `body` is an object and lives as long.
  explicit RequestFields(const Json& body) : body_(body) {}

  const Json& body() const { return body_; }
  bool has_failed() const { return error_.has_value(); }
  // Null when the field is missing or null, or an error was found before.
  const Json* Find(absl::string_view name) const;
  void Fail(absl::string_view param, absl::string_view code, std::string message);
  // Within [least, most]; none when the field is missing or an error was found. An integer may be
  // written as a float (WholeNumber).
  std::optional<int64_t> Integer(absl::string_view name, int64_t least, int64_t most);
  std::optional<double> Decimal(absl::string_view name, double least, double most);
  // False when it is missing.
  bool Boolean(absl::string_view name);

 protected:
  const Json& body_;
  std::optional<ApiError> error_;
};

}  // namespace macrame::agentd
