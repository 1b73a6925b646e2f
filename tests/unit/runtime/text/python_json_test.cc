#include "runtime/text/python_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "proto/reasons.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"
#include "tests/unit/runtime/text/model_folder.h"

namespace macrame::runtime::text {
namespace {

using ::testing::HasSubstr;

TEST(PythonJson, WhatPythonWritesIsReadByEveryReader) {
  const auto strict = ReadPythonJson(
      "\xEF\xBB\xBF{\"limit\": [0.0, Infinity, -Infinity, NaN], \"long\": "
      "1000000000000000019884624838656, \"a\": 1, \"a\": 2}\n");
  ASSERT_TRUE(strict.ok()) << strict.status();
  const auto json = nlohmann::json::parse(*strict);
  EXPECT_EQ(json["limit"][1].get<double>(), std::numeric_limits<double>::max());
  EXPECT_EQ(json["limit"][2].get<double>(), std::numeric_limits<double>::lowest());
  EXPECT_TRUE(json["limit"][3].is_null());
  EXPECT_EQ(json["long"].get<double>(), 1e30);
  EXPECT_EQ(json["a"].get<int>(), 2);
}

TEST(PythonJson, WhatPythonRefusesIsRefusedWithItsPlace) {
  const auto broken = ReadPythonJson("{\"a\": 1,\n}");
  EXPECT_EQ(broken.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReasonOf(broken.status()).code(), "MODEL_FILE_BROKEN");
  EXPECT_THAT(std::string(broken.status().message()), HasSubstr("line 2"));
  EXPECT_FALSE(ReadPythonJson("").ok());
  EXPECT_FALSE(ReadPythonJson("[\"\xff\"]").ok());
}

TEST(PythonJson, ATokenizersFilesAreReadSo) {
  const std::string folder = NewFolder("python_json");
  std::ifstream file(Fixture("byte_level") + "/tokenizer.json");
  const std::string json((std::istreambuf_iterator<char>(file)), {});
  WriteFile(folder + "/tokenizer.json", "\xEF\xBB\xBF" + json);
  WriteFile(folder + "/tokenizer_config.json",
            "\xEF\xBB\xBF{\"model_max_length\": Infinity, \"eos_token\": \"x\", \"eos_token\": "
            "\"<|im_end|>\", \"chat_template\": \"{{ messages[0].content }}{{ eos_token }}\"}");
  WriteFile(folder + "/generation_config.json", R"({"temperature": NaN, "eos_token_id": [3, 3]})");
  const auto tokenizer = Tokenizer::Load(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto chat_template = ChatTemplate::Load(folder);
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  ChatPrompt prompt;
  prompt.messages_json = R"([{"role":"user","content":"Hi "}])";
  EXPECT_EQ(chat_template->Render(prompt).value(), "Hi <|im_end|>");
}

}  // namespace
}  // namespace macrame::runtime::text
