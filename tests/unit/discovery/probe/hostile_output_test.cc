// Whatever the commands of a machine print, what is told of it can be sent: every text is UTF-8,
// else no other node could read the message.

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "discovery/probe/inventory.h"
#include "discovery/probe/link_facts.h"
#include "discovery/probe/mac_probe.h"
#include "proto/utf8.h"
#include "tests/unit/discovery/mutation.h"

namespace macrame::discovery {
namespace {

// Answers each command as it is told to.
class ScriptedRunner : public CommandRunner {
 public:
  explicit ScriptedRunner(std::function<CommandResult(const Command&)> answer)
      : answer_(std::move(answer)) {}
  CommandResult Run(const Command& command) override { return answer_(command); }

 private:
  const std::function<CommandResult(const Command&)> answer_;
};

CommandResult Said(std::string out, std::string err, int exit_code) {
  CommandResult result;
  result.outcome = CommandOutcome::kExited;
  result.exit_code = exit_code;
  result.out = std::move(out);
  result.err = std::move(err);
  return result;
}

// Where a text is that is no UTF-8; empty: nowhere.
std::string WrongText(const google::protobuf::Message& message) {
  const auto* reflection = message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const auto* field : fields) {
    const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
        const std::string text = field->is_repeated()
                                     ? reflection->GetRepeatedString(message, field, i)
                                     : reflection->GetString(message, field);
        if (FirstNonUtf8(text) != text.size()) return field->full_name();
      } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
        const auto& inner = field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i)
                                                 : reflection->GetMessage(message, field);
        const std::string wrong = WrongText(inner);
        if (!wrong.empty()) return wrong;
      }
    }
  }
  return "";
}

// All that is told of a Mac whose commands answer so.
void ExpectSendable(const std::function<CommandResult(const Command&)>& answer) {
  ScriptedRunner runner(answer);
  InventoryInputs inputs;
  inputs.node_id = NodeId("000000000000000000000000000000aa");
  inputs.disk_paths = {"/"};
  const v1::Inventory inventory = CollectMacInventory(runner, inputs);
  EXPECT_EQ(WrongText(inventory), "");
  v1::Inventory read_inventory;
  EXPECT_TRUE(read_inventory.ParseFromString(inventory.SerializeAsString()));
  LinkInputs link_inputs;
  link_inputs.node_id = inputs.node_id;
  link_inputs.hostname = "oak";
  const v1::LinkFacts facts = CollectMacLinks(runner, link_inputs);
  EXPECT_EQ(WrongText(facts), "");
  v1::LinkFacts read_facts;
  EXPECT_TRUE(read_facts.ParseFromString(facts.SerializeAsString()));
}

TEST(HostileOutput, BytesOfAnotherEncodingAreTakenOut) {
  for (const int exit_code : {0, 1}) {
    ExpectSendable([&](const Command&) {
      return Said("Ger\xe4t: \xff\xfe\x80\n\xc3", "Zugriff verweigert f\xfcr \xe4\n", exit_code);
    });
  }
}

TEST(HostileOutput, WordsOfSeveralBytesAreNotCutInTheMiddle) {
  for (size_t before = 0; before < 4; ++before) {
    std::string words(before, '.');
    while (words.size() < 200'000) words += "機械が見つかりません";
    for (const int exit_code : {0, 1}) {
      ExpectSendable([&](const Command&) { return Said(words, words, exit_code); });
      ExpectSendable([&](const Command&) { return Said(words + "\n", words + "\n", exit_code); });
    }
  }
}

TEST(HostileOutput, DescribingAFailureCutsAtACharacter) {
  const Command command{.argv = {"tool"}};
  for (size_t before = 0; before < 4; ++before) {
    std::string words(before, '.');
    while (words.size() < 1000) words += "é中🚀";
    const std::string text = DescribeOutcome(command, Said("", words + "\nmore", 3));
    EXPECT_EQ(text.rfind("exit code 3: ", 0), 0u);
    EXPECT_EQ(FirstNonUtf8(text), text.size());
    EXPECT_LE(text.size(), 213u);
    EXPECT_GT(text.size(), 205u);
  }
  EXPECT_EQ(DescribeOutcome(command, Said("", "f\xfcr\n", 1)), "exit code 1: f?r");
}

TEST(HostileOutput, DamagedCapturesCanBeSent) {
  auto captured = ReplayCommandRunner::Open("tests/captures/studio-m3-ultra-512");
  ASSERT_TRUE(captured.ok());
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    ExpectSendable([&](const Command& command) {
      CommandResult result = captured->Run(command);
      result.out = tests::Mutate(result.out, random);
      for (int k = 0; k < 20 && !result.out.empty(); ++k) {
        result.out[random() % result.out.size()] = static_cast<char>(random() | 0x80);
      }
      return result;
    });
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace macrame::discovery
