#include "agentd/gateway/endpoints/openapi.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "agentd/gateway/endpoints/endpoints.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

TEST(OpenApi, DescribesEveryRouteAndMethodAndNoOther) {
  const json text = json::parse(OpenApiText(Endpoints(), "1.2.3"));
  EXPECT_EQ(text["openapi"], "3.1.0");
  EXPECT_EQ(text["info"]["version"], "1.2.3");
  std::set<std::string> served, described;
  for (const Endpoint& endpoint : Endpoints().rows()) {
    const PathDescription* about = DescriptionOf(endpoint.path);
    ASSERT_NE(about, nullptr) << endpoint.path;
    std::string path(endpoint.path);
    if (!about->name.empty()) path += "{" + std::string(about->name) + "}";
    EXPECT_EQ(!about->name.empty(), endpoint.has_name()) << path;
    for (const absl::string_view method : absl::StrSplit(endpoint.methods, ", ")) {
      served.insert(absl::AsciiStrToLower(method) + " " + path);
    }
  }
  for (const auto& [path, methods] : text["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) described.insert(method + " " + path);
  }
  EXPECT_EQ(described, served);
}

TEST(OpenApi, StatusesAreThoseThatAPathMayAnswerWith) {
  const json paths = json::parse(OpenApiText(Endpoints(), "1"))["paths"];
  const auto statuses = [&paths](const char* path, const char* method) {
    std::set<std::string> all;
    for (const auto& [status, response] : paths[path][method]["responses"].items()) {
      all.insert(status);
      EXPECT_EQ(response.contains("content"), std::string(method) != "head") << path << status;
    }
    return all;
  };
  const std::set<std::string> plain = {"200", "400", "401", "403", "431", "500", "503", "default"};
  EXPECT_EQ(statuses("/health", "get"), plain);
  EXPECT_EQ(statuses("/health", "head"), plain);
  std::set<std::string> served = plain;
  served.insert({"404", "413", "415", "429", "504"});
  EXPECT_EQ(statuses("/v1/messages", "post"), served);
  std::set<std::string> refused = plain;
  refused.erase("200");
  refused.insert({"413", "415", "501"});
  EXPECT_EQ(statuses("/api/pull", "post"), refused);
}

// Every reference leads to a schema, and ids of operations are their own.
void CollectRefs(const json& value, std::set<std::string>* refs) {
  if (value.is_object() && value.contains("$ref")) refs->insert(value["$ref"].get<std::string>());
  if (!value.is_structured()) return;
  for (const json& member : value) CollectRefs(member, refs);
}

TEST(OpenApi, ReferencesAndIdsAreSound) {
  const json text = json::parse(OpenApiText(Endpoints(), "1"));
  std::set<std::string> refs, ids;
  CollectRefs(text, &refs);
  EXPECT_GT(refs.size(), 20u);
  for (const std::string& ref : refs) {
    EXPECT_TRUE(text.contains(json::json_pointer(ref.substr(1)))) << ref;
  }
  for (const auto& [path, methods] : text["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) {
      EXPECT_TRUE(ids.insert(operation["operationId"]).second) << operation["operationId"];
    }
  }
}

}  // namespace
}  // namespace macrame::agentd
