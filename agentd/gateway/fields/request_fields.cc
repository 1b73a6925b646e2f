#include "agentd/gateway/fields/request_fields.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {

Json WholeNumber(const Json& value) {
  if (value.is_number_integer()) return value;
  if (!value.is_number_float()) return nullptr;
  constexpr double kExactMax = 9'007'199'254'740'992;  // 2^53
  const double number = value.get<double>();
  if (!(std::fabs(number) <= kExactMax) || number != std::trunc(number)) return nullptr;
  return static_cast<int64_t>(number);
}

const Json* RequestFields::Find(absl::string_view name) const {
  if (error_) return nullptr;
  const auto found = body_.find(std::string(name));
  return found == body_.end() || found->is_null() ? nullptr : &*found;
}

void RequestFields::Fail(absl::string_view param, absl::string_view code, std::string message) {
  if (!error_) error_ = BadRequest(std::move(message), std::string(param), std::string(code));
}

std::optional<int64_t> RequestFields::Integer(absl::string_view name, int64_t least, int64_t most) {
  const Json* given = Find(name);
  if (given == nullptr) return std::nullopt;
  const Json value = WholeNumber(*given);
  if (!value.is_number_integer()) {
    Fail(name, "invalid_type", absl::StrCat("'", name, "' must be an integer."));
    return std::nullopt;
  }
  const bool too_big =
      value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most);
  if (too_big || value.get<int64_t>() > most) {
    Fail(name, "integer_above_max_value", absl::StrCat("'", name, "' must be at most ", most, "."));
  } else if (value.get<int64_t>() < least) {
    Fail(name, "integer_below_min_value",
         absl::StrCat("'", name, "' must be at least ", least, "."));
  } else {
    return value.get<int64_t>();
  }
  return std::nullopt;
}

std::optional<double> RequestFields::Decimal(absl::string_view name, double least, double most) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    Fail(name, "invalid_type", absl::StrCat("'", name, "' must be a number."));
    return std::nullopt;
  }
  const double number = value->get<double>();
  if (!std::isfinite(number) || number > most) {
    Fail(name, "decimal_above_max_value", absl::StrCat("'", name, "' must be at most ", most, "."));
  } else if (number < least) {
    Fail(name, "decimal_below_min_value",
         absl::StrCat("'", name, "' must be at least ", least, "."));
  } else {
    return number;
  }
  return std::nullopt;
}

bool RequestFields::Boolean(absl::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return false;
  if (!value->is_boolean()) {
    Fail(name, "invalid_type", absl::StrCat("'", name, "' must be true or false."));
    return false;
  }
  return value->get<bool>();
}

}  // namespace macrame::agentd
