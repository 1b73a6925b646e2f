// Requests come from states and descriptions that others wrote: whatever number stands in whatever
// field, there is a plan that fits or a reason that says something.

#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "planner/constraints.h"
#include "planner/planner.h"
#include "proto/reasons.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

class Vandal {
 public:
  explicit Vandal(uint64_t seed) : random_(seed) {}

  // One field somewhere in the message, or in one that it holds, becomes something else.
  void Spoil(Message* message) {
    const auto* descriptor = message->GetDescriptor();
    if (descriptor->field_count() == 0) return;
    const FieldDescriptor* field = descriptor->field(Pick(descriptor->field_count()));
    const Reflection* reflection = message->GetReflection();
    if (!field->is_repeated()) return SpoilOne(message, reflection, field);
    const int size = reflection->FieldSize(*message, field);
    if (size == 0) return;
    if (Pick(6) == 0) return reflection->RemoveLast(message, field);
    SpoilRepeated(message, reflection, field, Pick(size));
  }

 private:
  int Pick(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }
  uint64_t Number() {
    constexpr uint64_t kNumbers[] = {0,          1,          2,          3,          7,
                                     64,         1000,       1ULL << 24, 1ULL << 31, ~0u,
                                     1ULL << 40, 1ULL << 59, 1ULL << 63, ~0ULL};
    return kNumbers[Pick(static_cast<int>(std::size(kNumbers)))];
  }
  double Figure() {
    constexpr double kFigures[] = {0,
                                   -1,
                                   1e-300,
                                   1e300,
                                   1e9,
                                   0.5,
                                   std::numeric_limits<double>::infinity(),
                                   std::numeric_limits<double>::quiet_NaN()};
    return kFigures[Pick(static_cast<int>(std::size(kFigures)))];
  }
  std::string Text() {
    const char* kTexts[] = {"", "node-0", "jaccl", "ring", "mlx", "\xff\xfe", "Apple M4 Max"};
    return Pick(7) == 0 ? std::string(100'000, 'x') : kTexts[Pick(7)];
  }

  void SpoilOne(Message* message, const Reflection* reflection, const FieldDescriptor* field) {
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT32:
        return reflection->SetUInt32(message, field, static_cast<uint32_t>(Number()));
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection->SetUInt64(message, field, Number());
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection->SetDouble(message, field, Figure());
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection->SetBool(message, field, Pick(2) == 0);
      case FieldDescriptor::CPPTYPE_ENUM:
        return reflection->SetEnumValue(message, field, Pick(9));
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection->SetString(message, field, Text());
      case FieldDescriptor::CPPTYPE_MESSAGE:
        // What is not there is rarely made: a draft model, a plan in force.
        if (!reflection->HasField(*message, field) && Pick(8) > 0) return;
        return Spoil(reflection->MutableMessage(message, field));
      default:
        return;
    }
  }
  void SpoilRepeated(Message* message, const Reflection* reflection, const FieldDescriptor* field,
                     int index) {
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT32:
        return reflection->SetRepeatedUInt32(message, field, index,
                                             static_cast<uint32_t>(Number()));
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection->SetRepeatedUInt64(message, field, index, Number());
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection->SetRepeatedString(message, field, index, Text());
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Spoil(reflection->MutableRepeatedMessage(message, field, index));
      default:
        return;
    }
  }

  std::mt19937_64 random_;
};

v1::PlanRequest Sound(uint64_t seed) {
  std::vector<v1::PlannerNode> nodes;
  std::vector<std::string> ids;
  for (uint64_t i = 0; i < 1 + seed % 4; ++i) {
    ids.push_back(absl::StrCat("node-", i));
    nodes.push_back(Node(ids.back(), (12 + 4 * i) * kGiB));
    nodes.back().set_chip(i % 2 == 0 ? "Apple M4 Max" : "");
    nodes.back().set_gpu_cores(seed % 5 == 0 ? 0 : 40);
    nodes.back().mutable_traits()->set_uneven_tensor(seed % 3 > 0);
    nodes.back().mutable_traits()->set_whole_experts(seed % 3 > 0);
    nodes.back().mutable_traits()->set_tensor_in_pipeline(seed % 2 > 0);
    nodes.back().set_has_draft_files(true);
  }
  v1::PlanRequest request = Request(
      seed % 2 == 0 ? LargeModel("m", 16 * kGiB, 12) : MixtureModel("m", 16 * kGiB, 12), nodes);
  if (seed % 3 == 0) AddMesh(ids, &request);
  if (seed % 7 == 0) *request.mutable_draft_model() = SmallModel();
  if (seed % 4 == 0) {
    v1::PlanRequest brief = request;
    brief.set_brief(true);
    *request.mutable_current() = PlanModel(brief).plan();
  }
  return request;
}

void CheckAnswer(const v1::PlanRequest& request, const v1::PlanResult& result) {
  ASSERT_NE(result.has_plan(), result.has_failure());
  if (result.has_failure()) {
    EXPECT_NE(FindReasonCode(result.failure().code()), nullptr) << result.failure().code();
    EXPECT_FALSE(result.failure().message().empty());
    return;
  }
  const v1::Plan& plan = result.plan();
  ASSERT_EQ(static_cast<uint64_t>(plan.assignments_size()), uint64_t{plan.tp()} * plan.pp());
  ASSERT_GT(plan.assignments_size(), 0);
  uint32_t next = 0;
  for (const v1::Assignment& part : plan.assignments()) {
    EXPECT_LE(part.need().total_bytes(), part.budget_bytes());
    EXPECT_LT(part.layer_begin(), part.layer_end());
    if (part.tp_rank() != 0) continue;
    EXPECT_EQ(part.layer_begin(), next);
    next = part.layer_end();
  }
  EXPECT_EQ(next, request.model().layer_count());
}

TEST(HostileRequest, IsAnsweredWithAPlanThatFitsOrAReason) {
  int plans = 0, refusals = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    v1::PlanRequest request = Sound(seed);
    Vandal vandal(seed);
    for (uint64_t times = 1 + seed % 9; times > 0; --times) vandal.Spoil(&request);
    const v1::PlanResult result = PlanModel(request);
    CheckAnswer(request, result);
    if (HasFatalFailure()) return;
    ++(result.has_plan() ? plans : refusals);
  }
  EXPECT_GT(plans, 250);
  EXPECT_GT(refusals, 250);
}

// The model's own numbers alone: the most likely to come from a file of somebody else.
TEST(HostileRequest, OfAModelsDescriptionIsRefusedOrCalculatedWith) {
  int plans = 0, refusals = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    v1::PlanRequest request = Sound(seed);
    Vandal vandal(seed);
    for (uint64_t times = 1 + seed % 3; times > 0; --times) {
      vandal.Spoil(seed % 5 == 0 && request.has_draft_model() ? request.mutable_draft_model()
                                                              : request.mutable_model());
    }
    const v1::PlanResult result = PlanModel(request);
    CheckAnswer(request, result);
    if (HasFatalFailure()) return;
    if (ValidateModel(request.model()).has_value()) {
      EXPECT_EQ(result.failure().code(), reasons::kModelConfigInvalid);
    }
    ++(result.has_plan() ? plans : refusals);
  }
  EXPECT_GT(plans, 250);
  EXPECT_GT(refusals, 150);
}

}  // namespace
}  // namespace macrame::planner
