#include "agentd/dashboard/assets.h"

#include <gtest/gtest.h>

#include <set>

namespace macrame::agentd::dashboard {
namespace {

TEST(Assets, ThePageIsAtItsThreePaths) {
  const Asset* page = FindAsset("/");
  ASSERT_NE(page, nullptr);
  EXPECT_EQ(page->name, "index.html");
  EXPECT_EQ(FindAsset("/dashboard"), page);
  EXPECT_EQ(FindAsset("/dashboard/"), page);
}

TEST(Assets, NothingElseIsServed) {
  for (const char* path : {"", "/app.js", "/index.html", "/dashboard/../app.js",
                           "/dashboard/app.js/", "/dashboard//app.js", "/dashboard/APP.JS",
                           "/dashboardapp.js", "/dashboard/api/snapshot", "/dashboard/%61pp.js"}) {
    EXPECT_EQ(FindAsset(path), nullptr) << path;
  }
}

// A file that the page names and that is not compiled in leaves it blank.
TEST(Assets, WhatThePageNamesIsThere) {
  const absl::string_view page = FindAsset("/")->bytes;
  size_t named = 0;
  for (size_t at = page.find("/dashboard/"); at != absl::string_view::npos;
       at = page.find("/dashboard/", at + 1)) {
    const absl::string_view path = page.substr(at, page.find('"', at) - at);
    EXPECT_NE(FindAsset(path), nullptr) << path;
    ++named;
  }
  EXPECT_EQ(named, AllAssets().size() - 1);
}

TEST(Assets, FilesHaveTypesAndTagsOfTheirOwn) {
  EXPECT_EQ(ContentTypeOf(*FindAsset("/")), "text/html; charset=utf-8");
  EXPECT_EQ(ContentTypeOf(*FindAsset("/dashboard/app.js")), "text/javascript; charset=utf-8");
  EXPECT_EQ(ContentTypeOf(*FindAsset("/dashboard/app.css")), "text/css; charset=utf-8");
  EXPECT_EQ(ContentTypeOf(*FindAsset("/dashboard/favicon.svg")), "image/svg+xml");
  std::set<absl::string_view> tags;
  size_t bytes = 0;
  for (const Asset& asset : AllAssets()) {
    EXPECT_EQ(asset.etag.size(), 18u);
    tags.insert(asset.etag);
    bytes += asset.bytes.size();
  }
  EXPECT_EQ(tags.size(), AllAssets().size());
  EXPECT_LT(bytes, 200'000u);
}

// The policy of SecurityHeaders() blocks these, in silence but for the console.
TEST(Assets, ThePageHasNothingInline) {
  const absl::string_view page = FindAsset("/")->bytes;
  for (const char* inlined : {" style=", "<style", " onclick=", " onload=", "://", "<script>"}) {
    EXPECT_EQ(page.find(inlined), absl::string_view::npos) << inlined;
  }
}

}  // namespace
}  // namespace macrame::agentd::dashboard
