// A tokenizer's files are read as Python reads them.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"
#include "tests/unit/runtime/text/model_folder.h"

namespace macrame::runtime::text {
namespace {

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
