#include "cli/format/message_json.h"

#include <gtest/gtest.h>

namespace macrame::cli {
namespace {

TEST(MessageJson, YamlNestsListsAndQuotesText) {
  Json document = Document("Test");
  document["items"] = Json::array({{{"name", "a: b"}, {"list", {1, 2}}}, {{"name", "no"}}});
  document["none"] = Json::array();
  document["nothing"] = nullptr;
  EXPECT_EQ(ToYamlText(document),
            "apiVersion: \"macrame/v1\"\n"
            "kind: \"Test\"\n"
            "items:\n"
            "  - name: \"a: b\"\n"
            "    list:\n"
            "      - 1\n"
            "      - 2\n"
            "  - name: \"no\"\n"
            "none: []\n"
            "nothing: null\n");
}

}  // namespace
}  // namespace macrame::cli
