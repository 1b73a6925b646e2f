// Families whose calls look like nobody else's.

#include "tests/unit/runtime/serving/markup/transcripts.h"

namespace macrame::runtime::markup {

const std::vector<TranscriptCase>& NativeTranscripts() {
  static const std::vector<TranscriptCase> cases = {
      {"olmo3", "calls on lines of their own",
       "I look.\n<function_calls>\nget_weather(city=\"Rome\", days=2)\nget_time()\n"
       "</function_calls>",
       "say: I look.\ncall 0 get_weather: {\"city\": \"Rome\", \"days\": 2}\n"
       "call 1 get_time: {}\n"},
      {"olmo3", "values as JSON writes them",
       "<function_calls>search(filters={\"year\": 2024, \"code\": null}, tags=[true])"
       "</function_calls>",
       "call 0 search: {\"filters\": {\"year\": 2024, \"code\": null}, \"tags\": [true]}\n"},
      {"olmo3", "a file with brackets and quotes",
       "<function_calls>write_file(path='a.py', content=\"if (a): print(\\\"b, c)\\\")\\n\")"
       "</function_calls>Done.",
       "call 0 write_file: {\"path\": \"a.py\", \"content\": \"if (a): print(\\\"b, "
       "c)\\\")\\n\"}\nsay: Done.\n"},
      {"olmo3", "reasoning", "Hm.</think>\n<function_calls>get_time()</function_calls>",
       "think: Hm.\ncall 0 get_time: {}\n", "assistant\n<think>"},
      {"olmo3", "cut off within a text", "<function_calls>get_weather(city=\"Ro",
       "call 0 get_weather: {\"city\": \"Ro\n", "", true},
      {"solar", "reasoning, text",
       "<|think|>Hm.<|end|><|begin|>assistant<|content|>Seven degrees.<|end|>",
       "think: Hm.\nsay: Seven degrees.\n"},
      {"solar", "reasoning, calls",
       "<|think|>I look.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2c3d4e5"
       "<|tool_call:name|>get_weather<|tool_call:args|>{\"city\": \"Rome\"}<|tool_call:end|>"
       "<|tool_call:begin|>f6g7h8i9j0<|tool_call:name|>get_time<|tool_call:args|>{}"
       "<|tool_call:end|><|calls|>",
       "think: I look.\ncall 0 get_weather: {\"city\": \"Rome\"}\ncall 1 get_time: {}\n"},
      {"solar", "text alone", "<|content|>Hello", "say: Hello\n"},
      {"solar", "text without a marker", "Hello<|end|>", "say: Hello\n"},
      {"solar", "text, then a call",
       "<|content|>I look.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a"
       "<|tool_call:name|>get_time<|tool_call:args|>{}<|tool_call:end|><|calls|>",
       "say: I look.\ncall 0 get_time: {}\n"},
      {"solar", "cut off within arguments",
       "<|tool_calls|><|tool_call:begin|>a<|tool_call:name|>get_weather<|tool_call:args|>{\"ci",
       "call 0 get_weather: {\"ci\n", "", true},
      {"solar", "a call without a name", "<|tool_calls|><|tool_call:begin|>a<|tool_call:end|>",
       "say: <|tool_call:begin|>a<|tool_call:end|>\n"},
      {"llama3", "a custom call", "<function=get_weather>{\"city\": \"Rome\"}</function>",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"llama3", "a custom call behind words, and one more",
       "I look.\n<function=get_weather>{\"city\": \"Rome\"}</function>\n<function=get_time>{}"
       "</function>",
       "say: I look.\ncall 0 get_weather: {\"city\": \"Rome\"}\ncall 1 get_time: {}\n"},
      {"llama3", "a custom call that is not closed", "<function=get_weather>{\"city\": \"Rome\"}",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"llama3", "a built-in call", "<|python_tag|>search.call(note=\"Rome\")",
       "call 0 search: {\"note\": \"Rome\"}\n"},
      {"llama3", "code for no tool", "<|python_tag|>print(1)", "say: <|python_tag|>print(1)\n"},
      {"json_functions", "one call", "<function=get_weather>{\"city\": \"Rome\"}</function>",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"json_functions", "a file that speaks of calls",
       "<function=write_file>{\"content\": \"A </function> ends it\"}</function>",
       "call 0 write_file: {\"content\": \"A </function> ends it\"}\n"},
      {"qwen3_coder", "JSON between a function's tags",
       "<tool_call>\n<function=get_weather>\n{\"city\": \"Rome\"}\n</function>\n</tool_call>ok",
       "call 0 get_weather: {\"city\": \"Rome\"}\nsay: ok\n"},
      {"kimi", "the section in the singular",
       "<|tool_call_section_begin|><|tool_call_begin|>functions.get_weather:0"
       "<|tool_call_argument_begin|>{\"city\": \"Rome\"}<|tool_call_end|>"
       "<|tool_call_section_end|>",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"kimi", "the section in both",
       "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_time:0"
       "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_begin|>functions.get_time:1"
       "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_section_end|>",
       "say: I look.\ncall 0 get_time: {}\ncall 1 get_time: {}\n"},
      {"functionary", "text for everybody", "all\nHello >>> you", "say: Hello >>> you\n"},
      {"functionary", "text, then calls",
       "all\nI look.\n>>>get_weather\n{\"city\": \"Rome\"}>>>get_time\n{}",
       "say: I look.\ncall 0 get_weather: {\"city\": \"Rome\"}\ncall 1 get_time: {}\n"},
      {"functionary", "a call", "get_weather\n{\"city\": \"Rome\"}",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"functionary", "cut off within arguments", "get_weather\n{\"city\": \"Ro",
       "call 0 get_weather: {\"city\": \"Ro\n", "", true},
      {"functionary", "a name that is no tool's", "Well\nthen", "say: Well\\nthen\n"},
      {"glm4", "a call", "\nget_weather\n{\"city\": \"Rome\"}",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"glm4", "two calls", "get_time\n{}\nget_weather\n{\"city\": \"Rome\"}",
       "call 0 get_time: {}\ncall 1 get_weather: {\"city\": \"Rome\"}\n"},
      {"glm4", "text that begins with a tool's name", "get_weather\nis a tool.",
       "say: get_weather\\nis a tool.\n"},
      {"minicpm5", "parameters in attributes",
       "I look.<function name=\"get_weather\"><param name=\"city\">Rome</param>"
       "<param name=\"days\">2</param></function><function name=\"get_time\"></function>",
       "say: I look.\ncall 0 get_weather: {\"city\": \"Rome\", \"days\": 2}\ncall 1 get_time: "
       "{}\n"},
      {"minicpm5", "a file in CDATA",
       "<function name=\"write_file\"><param name=\"content\"><![CDATA[<b>\n</param> & ]]>"
       "</param></function>",
       "call 0 write_file: {\"content\": \"<b>\\n</param> & \"}\n"},
      {"minicpm4", "calls in a fence of code",
       "<|tool_call_start|>\n```python\nget_weather(city=\"Rome\")\nget_time()\n```\n"
       "<|tool_call_end|>",
       "call 0 get_weather: {\"city\": \"Rome\"}\ncall 1 get_time: {}\n"},
      {"hunyuan", "a block of calls",
       "<think:x>Hm</think:x>I look.<tool_calls:x>\n<tool_call:x>get_weather<tool_sep:x>\n"
       "<arg_key:x>city</arg_key:x>\n<arg_value:x>Rome</arg_value:x>\n<arg_key:x>days</arg_key:x>\n"
       "<arg_value:x>2</arg_value:x>\n</tool_call:x>\n<tool_call:x>get_time<tool_sep:x>\n"
       "</tool_call:x>\n</tool_calls:x>",
       "think: Hm\nsay: I look.\ncall 0 get_weather: {\"city\": \"Rome\", \"days\": 2}\n"
       "call 1 get_time: {}\n"},
      {"granite", "a list behind the token",
       "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}]",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"granite", "words, and a list behind the tag",
       "I look.\n<tool_call>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}, "
       "{\"name\": \"get_time\", \"arguments\": {}}]",
       "say: I look.\ncall 0 get_weather: {\"city\": \"Rome\"}\ncall 1 get_time: {}\n"},
      {"granite", "one call behind the tag, in no list",
       "<tool_call> {\"name\": \"get_time\", \"arguments\": {}}\n", "call 0 get_time: {}\n"},
      {"granite", "a call behind reasoning",
       "<think>I look.</think>\n<tool_call>[{\"name\": \"get_time\", \"arguments\": {}}]",
       "think: I look.\ncall 0 get_time: {}\n"},
      {"granite", "a tag that opens no call", "The tag <tool_call> opens a call.",
       "say: The tag <tool_call> opens a call.\n"},
      {"granite", "an answer between tags", "<think>Hm.</think><response>Hi</response>",
       "think: Hm.\nsay: Hi\n"},
      {"granite", "an answer between tags, on lines of its own",
       "<think>\nHm.\n</think>\n\n<response>\nHi.\n\nBye.\n</response>\n",
       "think: Hm.\nsay: Hi.\\n\\nBye.\n"},
      {"granite", "an answer that speaks of its tags",
       "<think>Hm.</think><response>End <response> with </response>\n</response> or not."
       "</response>",
       "think: Hm.\nsay: End <response> with </response>\\n</response> or not.\n"},
      {"granite", "an answer that is not closed", "<think>Hm.</think>\n<response>Hi. ",
       "think: Hm.\nsay: Hi. \n", "", true},
      {"granite", "a closing tag that nothing opened", "<think>Hm.</think>Hi.</response>",
       "think: Hm.\nsay: Hi.</response>\n"},
      {"granite", "a tag within the answer alone", "<think>Hm.</think>Hi: <response>x</response>",
       "think: Hm.\nsay: Hi: <response>x</response>\n"},
      {"granite", "tags of an answer without reasoning", "<response>Hi</response>",
       "say: <response>Hi</response>\n"},
      {"granite", "an answer between tags, then a call",
       "<think>Hm.</think><response>I look.\n</response>\n<|tool_call|>[{\"name\": \"get_time\", "
       "\"arguments\": {}}]",
       "think: Hm.\nsay: I look.\ncall 0 get_time: {}\n"},
      {"granite", "a call between the answer's tags",
       "<think>Hm.</think><response>I look. <tool_call>[{\"name\": \"get_time\", \"arguments\": "
       "{}}]</response>",
       "think: Hm.\nsay: I look.\ncall 0 get_time: {}\n"},
      {"hunyuan_a13b", "an answer behind no thoughts",
       "<think>\n\n</think>\n<answer>\nSeven.\n</answer>", "say: Seven.\n"},
      {"hunyuan_a13b", "an answer behind reasoning that the prompt closed",
       "<answer>\nSeven.\n</answer>", "say: Seven.\n", "assistant<think>\n\n</think>\n"},
      {"hunyuan_a13b", "calls between the answer's tags",
       "<think>\nI look.\n</think>\n<answer><tool_calls>[{\"name\": \"get_weather\", "
       "\"arguments\": {\"city\": \"Rome\"}}]</tool_calls></answer>",
       "think: I look.\ncall 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"phi4", "a list between tags",
       "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}]"
       "<|/tool_call|>",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"phi4", "a list behind a word",
       "functools[{\"name\": \"get_time\", \"arguments\": {}}, {\"name\": \"get_weather\", "
       "\"arguments\": {\"city\": \"Rome\"}}]",
       "call 0 get_time: {}\ncall 1 get_weather: {\"city\": \"Rome\"}\n"},
      {"phi4", "words before a list of calls",
       "I look.\n<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", "
       "\"days\": 2}}, {\"name\": \"get_time\", \"arguments\": {}}]<|/tool_call|>",
       "say: I look.\ncall 0 get_weather: {\"city\": \"Rome\", \"days\": 2}\ncall 1 get_time: "
       "{}\n"},
      {"phi4", "a call as tools are described",
       "<|tool_call|>[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", "
       "\"arguments\": {\"city\": \"Rome\"}}}]<|/tool_call|>",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"functools", "a list behind a word",
       " functools[{\"name\": \"get_time\", \"arguments\": {}}]", "call 0 get_time: {}\n"},
      {"cohere", "a plan and an action",
       "<|START_THINKING|>I look.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
       "\"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}\n]<|END_ACTION|>",
       "think: I look.\ncall 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"apertus", "names as keys",
       "<|tools_prefix|>[{\"get_weather\": {\"city\": \"Rome\"}}, {\"get_time\": {}}]"
       "<|tools_suffix|>",
       "call 0 get_weather: {\"city\": \"Rome\"}\ncall 1 get_time: {}\n"},
      {"unknown", "another family's calls are text",
       "<tool_call>{\"name\": \"get_time\"}</tool_call>",
       "say: <tool_call>{\"name\": \"get_time\"}</tool_call>\n"},
  };
  return cases;
}

}  // namespace macrame::runtime::markup
