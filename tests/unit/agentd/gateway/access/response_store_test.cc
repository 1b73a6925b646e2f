#include "agentd/gateway/access/response_store.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

// `bytes` in all.
ResponseStore::Turn Turn(const std::string& tenant, size_t bytes, const std::string& holder = "") {
  const size_t of_names = tenant.size() + holder.size();
  return {.tenant = tenant,
          .body = std::make_shared<const std::string>(bytes - of_names, 'b'),
          .messages = std::make_shared<const std::string>(),
          .holder = holder};
}

TEST(ResponseStore, TheLeastRecentlyUsedLeaves) {
  ResponseStore store(2, 1000);
  store.Put("a", Turn("t", 10));
  store.Put("b", Turn("t", 10));
  ASSERT_NE(store.Find("a", "t"), nullptr);
  store.Put("c", Turn("t", 10));
  EXPECT_EQ(store.Find("b", "t"), nullptr);
  EXPECT_NE(store.Find("a", "t"), nullptr);
  EXPECT_NE(store.Find("c", "t"), nullptr);
  EXPECT_EQ(store.turns(), 2u);
}

TEST(ResponseStore, ATenantThatFillsTheStoreLosesItsOwn) {
  ResponseStore by_number(4, 1000);
  ResponseStore by_bytes(1000, 40);
  for (ResponseStore* store : {&by_number, &by_bytes}) {
    store->Put("a", Turn("modest", 10));
    for (const char* id : {"1", "2", "3", "4", "5"}) store->Put(id, Turn("greedy", 10));
    EXPECT_NE(store->Find("a", "modest"), nullptr) << "the least recently used of all";
    EXPECT_EQ(store->Find("2", "greedy"), nullptr);
    EXPECT_NE(store->Find("3", "greedy"), nullptr);
    store->Put("b", Turn("modest", 10));
    EXPECT_NE(store->Find("a", "modest"), nullptr);
    EXPECT_NE(store->Find("b", "modest"), nullptr) << "there is room up to an equal share";
    EXPECT_EQ(store->turns(), 4u);
  }
}

// Many small ones do not count as much as few large ones where bytes are short.
TEST(ResponseStore, WhatIsShortDecidesWhoHasMost) {
  ResponseStore store(10, 100);
  for (const char* id : {"1", "2", "3", "4"}) store.Put(id, Turn("many", 10));
  store.Put("large", Turn("few", 50));
  store.Put("5", Turn("many", 20));
  EXPECT_EQ(store.Find("1", "many"), nullptr);
  EXPECT_NE(store.Find("large", "few"), nullptr) << "50 bytes are less than 60";
  store.Put("more", Turn("few", 30));
  EXPECT_EQ(store.Find("large", "few"), nullptr);
  EXPECT_NE(store.Find("2", "many"), nullptr);
}

// Where no keys are asked for, a client at one address may send any number of them.
TEST(ResponseStore, AHolderOfManyTenantsDrivesNobodyOut) {
  ResponseStore by_number(4, 1000);
  ResponseStore by_bytes(1000, 80);
  for (ResponseStore* store : {&by_number, &by_bytes}) {
    store->Put("a", Turn("modest", 20, "near"));
    store->Put("b", Turn("modest", 20, "near"));
    for (const char* key : {"1", "2", "3", "4", "5"}) store->Put(key, Turn(key, 20, "far"));
    EXPECT_NE(store->Find("a", "modest"), nullptr) << "each of the many has less";
    EXPECT_NE(store->Find("b", "modest"), nullptr);
    EXPECT_EQ(store->Find("3", "3"), nullptr);
    EXPECT_NE(store->Find("5", "5"), nullptr);
    EXPECT_EQ(store->turns(), 4u);
  }
}

TEST(ResponseStore, BytesAreBounded) {
  ResponseStore store(100, 50);
  for (const char* id : {"a", "b", "c"}) store.Put(id, Turn("t", 20));
  EXPECT_EQ(store.turns(), 2u);
  EXPECT_EQ(store.bytes(), 40u);
  store.Put("large", Turn("t", 51));
  EXPECT_EQ(store.Find("large", "t"), nullptr);
  EXPECT_EQ(store.turns(), 2u);
  store.Put("b", Turn("t", 5));
  EXPECT_EQ(store.bytes(), 25u);
}

TEST(ResponseStore, ReadersShareATextThatOutlivesItsTurn) {
  ResponseStore store(2, 100);
  store.Put("a", Turn("t", 10));
  ASSERT_NE(store.Find("a", "t"), nullptr);
  const ResponseStore::Text first = store.Find("a", "t")->body;
  EXPECT_EQ(store.Find("a", "t")->body, first) << "the same text, and no copy";
  EXPECT_TRUE(store.Erase("a", "t"));
  EXPECT_EQ(*first, "bbbbbbbbb");
  EXPECT_EQ(store.bytes(), 0u);
}

TEST(ResponseStore, OthersNeitherFindNorErase) {
  ResponseStore store(2, 100);
  store.Put("a", Turn("mine", 10));
  EXPECT_EQ(store.Find("a", "yours"), nullptr);
  EXPECT_FALSE(store.Erase("a", "yours"));
  EXPECT_TRUE(store.Erase("a", "mine"));
  EXPECT_FALSE(store.Erase("a", "mine"));
  EXPECT_EQ(store.bytes(), 0u);
}

TEST(ResponseStore, WhatIsSaidToGoGoes) {
  ResponseStore store(10, 100);
  for (const char* id : {"a", "b", "c"}) store.Put(id, Turn(id, 10));
  const ResponseStore::Dropped dropped =
      store.DropIf([](const ResponseStore::Turn& turn) { return turn.tenant != "b"; });
  EXPECT_EQ(dropped.turns, 2u);
  EXPECT_EQ(dropped.bytes, 20u);
  EXPECT_EQ(store.turns(), 1u);
  EXPECT_EQ(store.bytes(), 10u);
  EXPECT_EQ(store.Find("a", "a"), nullptr);
  EXPECT_NE(store.Find("b", "b"), nullptr);
}

}  // namespace
}  // namespace macrame::agentd
