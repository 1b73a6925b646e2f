#include "proto/power_parts.h"

#include <set>

namespace macrame {
namespace {

const char* NameOf(v1::PowerPart part) {
  switch (part) {
    case v1::POWER_PART_MACHINE:
      return "machine";
    case v1::POWER_PART_PACKAGE:
      return "package";
    case v1::POWER_PART_CPU:
      return "cpu";
    case v1::POWER_PART_GPU:
      return "gpu";
    case v1::POWER_PART_ANE:
      return "ane";
    case v1::POWER_PART_MEMORY:
      return "memory";
    default:
      return "other";  // of a newer agent
  }
}

}  // namespace

std::string CoversText(const std::vector<v1::PowerPart>& parts) {
  std::string text;
  for (const v1::PowerPart part : parts) {
    text += text.empty() ? "" : "+";
    text += NameOf(part);
  }
  return text;
}

std::string CoversText(const google::protobuf::RepeatedField<int>& parts) {
  return CoversText(PartsOf(parts));
}

std::vector<v1::PowerPart> PartsOf(const google::protobuf::RepeatedField<int>& parts) {
  std::set<v1::PowerPart> sorted;
  for (const int part : parts) sorted.insert(static_cast<v1::PowerPart>(part));
  return {sorted.begin(), sorted.end()};
}

}  // namespace macrame
