#include "cli/format/access_view.h"

#include <gtest/gtest.h>

#include <sstream>

namespace macrame::cli {
namespace {

constexpr uint64_t kNow = 1'764'000'000'000;  // 2025-11-24 16:00 UTC

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(TimeText, IsUniversalTimeToTheMinute) {
  EXPECT_EQ(TimeText(0), "never");
  EXPECT_EQ(TimeText(kNow), "2025-11-24 16:00 UTC");
  EXPECT_EQ(TimeText(1), "1970-01-01 00:00 UTC");
  EXPECT_EQ(TimeText(253'402'300'799'000), "9999-12-31 23:59 UTC");
  // Beyond what a calendar has no time in the past.
  EXPECT_EQ(TimeText(UINT64_MAX), "never");
  EXPECT_EQ(TimeText(uint64_t{1} << 63), "never");
}

TEST(LimitsText, NamesThoseThatThereAre) {
  v1::ApiKey key;
  EXPECT_EQ(LimitsText(key), "none");
  key.set_concurrent_requests(2);
  EXPECT_EQ(LimitsText(key), "2 at once");
  key.set_requests_per_minute(60);
  key.set_tokens_per_minute(4'000'000'000);
  EXPECT_EQ(LimitsText(key), "60 requests/min, 4000000000 tokens/min, 2 at once");
  v1::TenantLimits tenant;
  tenant.set_tokens_per_minute(7);
  EXPECT_EQ(LimitsText(tenant), "7 tokens/min");
}

v1::ListKeysResponse OneKey() {
  v1::ListKeysResponse keys;
  v1::ApiKey& key = *keys.add_keys();
  key.set_id("0123456789ab");
  key.add_scopes("infer");
  key.add_scopes("read");
  return keys;
}

TEST(KeysView, AKeyIsValidUntilTheMillisecondInWhichItEnds) {
  v1::ListKeysResponse keys = OneKey();
  EXPECT_TRUE(Has(KeysView(keys, {}, kNow, 160, Style()), "valid"));
  keys.mutable_keys(0)->set_expires_unix_ms(kNow + 1);
  EXPECT_TRUE(Has(KeysView(keys, {}, kNow, 160, Style()), "valid"));
  keys.mutable_keys(0)->set_expires_unix_ms(kNow);
  EXPECT_TRUE(Has(KeysView(keys, {}, kNow, 160, Style()), "expired"));
  keys.mutable_keys(0)->set_revoked_unix_ms(1);
  EXPECT_TRUE(Has(KeysView(keys, {}, kNow, 160, Style()), "revoked")) << "also when it is expired";
}

TEST(KeysView, SaysScopesAndThatAllModelsAreMeant) {
  v1::ListKeysResponse keys = OneKey();
  std::string text = KeysView(keys, {}, kNow, 160, Style());
  EXPECT_TRUE(Has(text, "infer,read")) << text;
  EXPECT_TRUE(Has(text, "  all")) << text;
  keys.mutable_keys(0)->add_models("a");
  keys.mutable_keys(0)->add_models("b");
  text = KeysView(keys, {}, kNow, 160, Style());
  EXPECT_TRUE(Has(text, "  a,b")) << text;
  text = KeysView(v1::ListKeysResponse(), {}, kNow, 80, Style());
  EXPECT_TRUE(Has(text, "'clusterctl key create'")) << text;
}

TEST(KeysView, TheIdIsWholeInEachWindowForItIsWhatOneTypes) {
  v1::ListKeysResponse keys = OneKey();
  keys.mutable_keys(0)->set_name(std::string(200, 'n'));
  for (const int width : {80, 100, 160}) {
    EXPECT_TRUE(Has(KeysView(keys, {}, kNow, width, Style()), "0123456789ab ")) << width;
  }
}

TEST(AuditView, SaysWhatIsNoLineOfTheLogAndHowMuchWasLeftOut) {
  EXPECT_EQ(AuditView({}, 80, Style()), "Nothing in that time.\n");
  const std::vector<Json> entries = {
      Json::parse(R"({"time":"2025-11-24","who":"ada","what":"LoadModel","outcome":"ok"})"),
      Json::parse(R"({"who":7,"outcome":"refused","left_out":12})"), Json::parse("[1]"),
      Json::parse("{", nullptr, false), Json()};
  const std::string text = AuditView(entries, 160, Style());
  EXPECT_TRUE(Has(text, "2025-11-24  ada")) << text;
  EXPECT_TRUE(Has(text, "refused (and 12 before it)")) << text;
  std::istringstream lines(text);
  int broken = 0;
  for (std::string line; std::getline(lines, line);) broken += Has(line, "not a line") ? 1 : 0;
  EXPECT_EQ(broken, 3) << text;
}

TEST(TenantsView, SaysHowToSetLimits) {
  EXPECT_TRUE(Has(TenantsView(v1::ListTenantsResponse(), 80, Style()), "'clusterctl tenant set"));
}

}  // namespace
}  // namespace macrame::cli
