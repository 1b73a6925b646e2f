// Families that write calls as JSON or as Python.

#include "tests/unit/runtime/serving/markup/transcripts.h"

namespace macrame::runtime::markup {

const std::vector<TranscriptCase>& JsonTranscripts() {
  static const std::vector<TranscriptCase> cases = {
      {"hermes", "no call", "Nothing to do.\n", "say: Nothing to do.\\n\n"},
      {"hermes", "one call",
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
       "\"Oslo\"}}\n</tool_call>",
       "call 0 get_weather: {\"city\": \"Oslo\"}\n"},
      {"hermes", "words, two calls, words",
       "I look it up.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
       "\"Oslo\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_time\", "
       "\"arguments\": {}}\n</tool_call>\nDone.",
       "say: I look it up.\ncall 0 get_weather: {\"city\": \"Oslo\", \"days\": 2}\n"
       "call 1 get_time: {}\nsay: \\nDone.\n"},
      {"hermes", "reasoning with its own tags",
       "<think>\nThe user wants <b>Oslo</b>.\n</think>\n\nHello!",
       "think: The user wants <b>Oslo</b>.\nsay: Hello!\n"},
      {"hermes", "reasoning that the prompt opens", "Hm.\n</think>\n\nYes.",
       "think: Hm.\nsay: Yes.\n", "<|im_start|>assistant\n<think>\n"},
      {"hermes", "reasoning that the prompt closed", "Yes.", "say: Yes.\n",
       "<|im_start|>assistant\n<think>\n\n</think>\n\n"},
      {"hermes", "cut off within reasoning", "<think>\nFirst, I", "think: First, I\n", "", true},
      {"hermes", "empty reasoning before a call",
       "<think>\n\n</think>\n\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n"
       "</tool_call>",
       "call 0 get_time: {}\n"},
      {"hermes", "arguments first, and as a string",
       "<tool_call>{\"arguments\": \"{\\\"city\\\": \\\"Oslo\\\"}\", \"name\": \"get_weather\"}"
       "</tool_call>",
       "call 0 get_weather: {\"city\": \"Oslo\"}\n"},
      {"hermes", "no arguments, null arguments",
       "<tool_call>{\"name\": \"get_time\"}</tool_call><tool_call>{\"name\": \"get_time\", "
       "\"arguments\": null}</tool_call>",
       "call 0 get_time: {}\ncall 1 get_time: {}\n"},
      {"hermes", "nested as the API writes it",
       "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"get_time\", \"arguments\": "
       "{}}}</tool_call>",
       "call 0 get_time: {}\n"},
      {"hermes", "a list in one block",
       "<tool_call>[{\"name\": \"get_time\", \"arguments\": {}}, {\"name\": \"get_weather\", "
       "\"arguments\": {\"city\": \"Rome\"}}]</tool_call>",
       "call 0 get_time: {}\ncall 1 get_weather: {\"city\": \"Rome\"}\n"},
      {"hermes", "a tag and line ends within a string",
       "<tool_call>\n{\"name\": \"write_file\", \"arguments\": {\"path\": \"a.md\", \"content\": "
       "\"x\n</tool_call>\ty \\\"}\"}}\n</tool_call>",
       "call 0 write_file: {\"path\": \"a.md\", \"content\": \"x\\n</tool_call>\\ty \\\"}\"}\n"},
      {"hermes", "a bracket too many",
       "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}}\n</tool_call>",
       "call 0 get_time: {}\n"},
      {"hermes", "an object that is not closed",
       "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}\n</tool_call> ok",
       "call 0 get_time: {}\nsay:  ok\n"},
      {"hermes", "no JSON", "Use <tool_call> tags </tool_call>.",
       "say: Use <tool_call> tags </tool_call>.\n"},
      {"hermes", "broken before its name", "<tool_call>{\"nam: 1}</tool_call>",
       "say: <tool_call>{\"nam: 1}</tool_call>\n"},
      {"hermes", "broken arguments",
       "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": Oslo!}}</tool_call>ok",
       "call 0 get_weather: {\"city\": Oslo!}}\nsay: ok\n"},
      {"hermes", "cut off within arguments",
       "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Os",
       "call 0 get_weather: {\"city\": \"Os\n", "", true},
      {"hermes", "ends within a marker", "a < b, <tool_", "say: a < b, <tool_\n"},
      {"hermes", "a letter of two bytes",
       "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Tromsø\"}}</tool_call>",
       "call 0 get_weather: {\"city\": \"Tromsø\"}\n"},
      {"nemotron", "a list",
       "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}]</TOOLCALL>",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"mistral_old", "a list",
       "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}, \"id\": "
       "\"abc123DEF\"}, {\"name\": \"get_time\", \"arguments\": {}}]",
       "call 0 get_weather: {\"city\": \"Rome\"}\ncall 1 get_time: {}\n"},
      {"mistral_old", "words before",
       "I see. [TOOL_CALLS][{\"name\":\"get_time\",\"arguments\":{}}]",
       "say: I see.\ncall 0 get_time: {}\n"},
      {"mistral", "name and arguments",
       "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Rome\"}[TOOL_CALLS]get_time[ARGS]{}",
       "call 0 get_weather: {\"city\": \"Rome\"}\ncall 1 get_time: {}\n"},
      {"mistral", "with an id",
       "[TOOL_CALLS]get_weather[CALL_ID]123456789[ARGS]{\"city\": \"Rome\"}",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"mistral", "no separator", "[TOOL_CALLS]get_weather{\"city\": \"Rome\"}",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"mistral", "reasoning", "[THINK]Hm.[/THINK]Hello[TOOL_CALLS]get_time[ARGS]{}",
       "think: Hm.\nsay: Hello\ncall 0 get_time: {}\n"},
      {"mistral", "no name", "[TOOL_CALLS] what is this", "say: [TOOL_CALLS] what is this\n"},
      {"llama3", "plain", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"llama3", "with its tag and type",
       "<|python_tag|>{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": "
       "{\"city\": "
       "\"Rome\"}}",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"llama3", "several",
       "{\"name\": \"get_time\", \"parameters\": {}}; {\"name\": \"get_weather\", \"parameters\": "
       "{\"city\": \"Rome\"}}",
       "call 0 get_time: {}\ncall 1 get_weather: {\"city\": \"Rome\"}\n"},
      {"llama3", "other JSON", "{\"name\": \"Ann\", \"parameters\": {}}",
       "say: {\"name\": \"Ann\", \"parameters\": {}}\n"},
      {"llama3", "JSON behind words", "So: {\"name\": \"get_time\", \"parameters\": {}}",
       "say: So: {\"name\": \"get_time\", \"parameters\": {}}\n"},
      {"pythonic", "a list", "[get_weather(city=\"O'Hare\", days=3, detailed=True), get_time()]",
       "call 0 get_weather: {\"city\": \"O'Hare\", \"days\": 3, \"detailed\": true}\n"
       "call 1 get_time: {}\n"},
      {"pythonic", "with tags",
       "<|python_start|>[search(tags=['a', \"b\"], filters={'x': None})]"
       "<|python_end|>",
       "call 0 search: {\"tags\": [\"a\", \"b\"], \"filters\": {\"x\": null}}\n"},
      {"pythonic", "three quotes and escapes",
       "[write_file(path='a.py', content='''x = \"1\"\n\\ty\n''')]",
       "call 0 write_file: {\"path\": \"a.py\", \"content\": \"x = \\\"1\\\"\\n\\ty\\n\"}\n"},
      {"pythonic", "a list that is no call", "[1, 2] and f(x)", "say: [1, 2] and f(x)\n"},
      {"pythonic", "a function that is no tool", "[print(x=1)]", "say: [print(x=1)]\n"},
      {"pythonic", "cut off", "[get_weather(city=\"Ro", "call 0 get_weather: {\"city\": \"Ro\n", "",
       true},
      {"lfm2", "between tags", "<|tool_call_start|>[get_time()]<|tool_call_end|>Wait.",
       "call 0 get_time: {}\nsay: Wait.\n"},
      {"plain", "nothing is markup", " <think>x</think> <tool_call>{}</tool_call>\n",
       "say:  <think>x</think> <tool_call>{}</tool_call>\\n\n"},
  };
  return cases;
}

}  // namespace macrame::runtime::markup
