// Families that write each parameter between tags.

#include "tests/unit/runtime/serving/markup/transcripts.h"

namespace macrame::runtime::markup {

const std::vector<TranscriptCase>& TagTranscripts() {
  static const std::vector<TranscriptCase> cases = {
      {"qwen3_coder", "texts, numbers and truth",
       "Let me see.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nNew "
       "York\n</parameter>\n"
       "<parameter=days>\n3\n</parameter>\n<parameter=detailed>\nTrue\n</parameter>\n</function>\n"
       "</tool_call>",
       "say: Let me see.\ncall 0 get_weather: {\"city\": \"New York\", \"days\": 3, \"detailed\": "
       "true}\n"},
      {"qwen3_coder", "a file's lines",
       "<tool_call>\n<function=write_file>\n<parameter=path>\na.py\n</parameter>\n"
       "<parameter=content>\n\nif a < b:\n    print(\"<x>\")\n\n</parameter>\n</function>\n"
       "</tool_call>",
       "call 0 write_file: {\"path\": \"a.py\", \"content\": \"\\nif a < b:\\n    "
       "print(\\\"<x>\\\")\\n\"}\n"},
      {"qwen3_coder", "no parameters, twice",
       "<tool_call>\n<function=get_time>\n</function>\n</tool_call>\n<tool_call>\n"
       "<function=get_time></function></tool_call>",
       "call 0 get_time: {}\ncall 1 get_time: {}\n"},
      {"qwen3_coder", "without the outer tag",
       "<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"qwen3_coder", "objects, Python's too, and nothing",
       "<tool_call><function=search><parameter=filters>{'a': None, \"b\": [1]}</parameter>"
       "<parameter=tags>[\"x\"]</parameter><parameter=note>null</parameter></function></tool_call>",
       "call 0 search: {\"filters\": {\"a\": null, \"b\": [1]}, \"tags\": [\"x\"], \"note\": "
       "null}\n"},
      {"qwen3_coder", "a number where a text may stand",
       "<tool_call><function=search><parameter=note>12</parameter></function></tool_call>",
       "call 0 search: {\"note\": \"12\"}\n"},
      {"qwen3_coder", "a parameter that is not closed",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</tool_call>ok",
       "call 0 get_weather: {\"city\": \"Rome\"}\nsay: ok\n"},
      {"qwen3_coder", "a parameter that is not closed, and another call",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</tool_call>\n<tool_call>\n"
       "<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>",
       "call 0 get_weather: {\"city\": \"Rome\"}\ncall 1 get_weather: {\"city\": \"Bern\"}\n"},
      {"qwen3_coder", "a file that speaks of calls",
       "<tool_call>\n<function=write_file>\n<parameter=content>\nA call ends with </tool_call>, "
       "and\n"
       "</tool_call>\n</parameter> alone is text, as </function> is.\n</parameter>\n"
       "<parameter=path>\na.md\n</parameter>\n</function>\n</tool_call>",
       "call 0 write_file: {\"content\": \"A call ends with </tool_call>, and\\n</tool_call>\\n"
       "</parameter> alone is text, as </function> is.\", \"path\": \"a.md\"}\n"},
      {"qwen3_coder", "no closing tag but the parameter's",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</tool_call>",
       "call 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"qwen3_coder", "cut off within a text",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nRo",
       "call 0 get_weather: {\"city\": "
       "\"Ro\n",
       "", true},
      {"qwen3_coder", "ended within a text",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nRo",
       "call 0 get_weather: {\"city\": "
       "\"Ro\"}\n"},
      {"qwen3_coder", "JSON after all",
       "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>",
       "call 0 get_time: {}\n"},
      {"qwen3_coder", "reasoning that a call ends",
       "I should look.\n<tool_call>\n<function=get_time>\n</function>\n</tool_call>",
       "think: I should look.\ncall 0 get_time: {}\n", "assistant\n<think>\n"},
      {"qwen3_coder", "no name", "<tool_call>\n<function=>\n</function>",
       "say: <tool_call>\\n<function=>\\n</function>\n"},
      {"seed", "its own tags",
       "<seed:think>Hm</seed:think><seed:tool_call>\n<function=get_weather>\n<parameter=city>Rome"
       "</parameter>\n</function>\n</seed:tool_call>",
       "think: Hm\ncall 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"glm", "on lines of their own",
       "\n<think>Hm.</think>\nI look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
       "<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n"
       "</tool_call>",
       "think: Hm.\nsay: I look.\ncall 0 get_weather: {\"city\": \"Rome\", \"days\": 2}\n"},
      {"glm", "a text that speaks of calls",
       "<tool_call>write_file\n<arg_key>content</arg_key>\n<arg_value>a </tool_call> and "
       "</arg_value>"
       " b</arg_value>\n</tool_call>",
       "call 0 write_file: {\"content\": \"a </tool_call> and </arg_value> b\"}\n"},
      {"glm", "on one line, twice",
       "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>"
       "<tool_call>get_time</tool_call>",
       "call 0 get_weather: {\"city\": \"Rome\"}\ncall 1 get_time: {}\n"},
      {"glm", "a text that looks like a number",
       "<tool_call>get_weather<arg_key>city</arg_key><arg_value>007</arg_value></tool_call>",
       "call 0 get_weather: {\"city\": \"007\"}\n"},
      {"glm", "a parameter that nobody knows",
       "<tool_call>get_weather<arg_key>hour</arg_key><arg_value>7</arg_value><arg_key>zone"
       "</arg_key><arg_value>UTC</arg_value></tool_call>",
       "call 0 get_weather: {\"hour\": 7, \"zone\": \"UTC\"}\n"},
      {"glm", "cut off in a value",
       "<tool_call>write_file<arg_key>content</arg_key><arg_value>one\ntwo",
       "call 0 write_file: {\"content\": \"one\\ntwo\n", "", true},
      {"glm", "prose in tags", "<tool_call>is a tag</tool_call>",
       "say: <tool_call>is a tag</tool_call>\n"},
      {"minimax", "two in one block",
       "Hm.\n</think>\n\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
       "name=\"city\">Rome</parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n<invoke "
       "name=\"get_time\">\n</invoke>\n</minimax:tool_call>",
       "think: Hm.\ncall 0 get_weather: {\"city\": \"Rome\", \"days\": 2}\ncall 1 get_time: {}\n",
       "ai\n<think>\n"},
      {"minimax", "a block that holds none", "<minimax:tool_call>\nnothing\n</minimax:tool_call>",
       "say: <minimax:tool_call>\\nnothing\\n</minimax:tool_call>\n"},
      {"minimax_m3", "reasoning, text and a number",
       "<mm:think>Hm.</mm:think>I look.\n]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke "
       "name=\"get_weather\">\n]<]minimax[>[<city>New "
       "York]<]minimax[>[</city>\n]<]minimax[>[<days>2]<]minimax[>[</days>\n]<]minimax[>[</"
       "invoke>\n]<]minimax[>[</tool_call>",
       "think: Hm.\nsay: I look.\ncall 0 get_weather: {\"city\": \"New York\", \"days\": 2}\n"},
      {"minimax_m3", "two in one block, the prompt begins the reasoning",
       "Hm.</mm:think>]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke "
       "name=\"get_time\">]<]minimax[>[</invoke>\n]<]minimax[>[<invoke "
       "name=\"get_weather\">]<]minimax[>[<city>Rome]<]minimax[>[</city>]<]minimax[>[</"
       "invoke>]<]minimax[>[</tool_call>",
       "think: Hm.\ncall 0 get_time: {}\ncall 1 get_weather: {\"city\": \"Rome\"}\n",
       "ai\n<mm:think>"},
      {"minimax_m3", "reasoning closed that was not begun", "</mm:think>Yes.", "say: Yes.\n"},
      {"minimax_m3", "a call that ends the reasoning",
       "<mm:think>Look. ]<]minimax[>[<tool_call>]<]minimax[>[<invoke "
       "name=\"get_time\">]<]minimax[>[</invoke>]<]minimax[>[</tool_call>",
       "think: Look.\ncall 0 get_time: {}\n"},
      {"minimax_m3", "tags without the mark are text",
       "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke "
       "name=\"write_file\">]<]minimax[>[<content><p>a &lt; "
       "b</p>\n</content>]<]minimax[>[<b>x]<]minimax[>[</content>]<]minimax[>[</"
       "invoke>\n]<]minimax[>[</tool_call>",
       "call 0 write_file: {\"content\": \"<p>a &lt; b</p>\\n</content><b>x\"}\n"},
      {"minimax_m3", "objects in lists in objects, by the schema",
       "]<]minimax[>[<tool_call>]<]minimax[>[<invoke "
       "name=\"search\">]<]minimax[>[<filters>]<]minimax[>[<year>2]<]minimax[>[</"
       "year>]<]minimax[>[<code>7]<]minimax[>[</"
       "code>]<]minimax[>[<places>]<]minimax[>[<item>]<]minimax[>[<zip>01]<]minimax[>[</"
       "zip>]<]minimax[>[<near>]<]minimax[>[<year>3]<]minimax[>[</year>]<]minimax[>[</"
       "near>]<]minimax[>[</item>]<]minimax[>[<item>]<]minimax[>[<zip>02]<]minimax[>[</"
       "zip>]<]minimax[>[</item>]<]minimax[>[</places>]<]minimax[>[</"
       "filters>]<]minimax[>[<note>null]<]minimax[>[</note>]<]minimax[>[</invoke>]<]minimax[>[</"
       "tool_call>",
       "call 0 search: {\"filters\": {\"year\": 2, \"code\": \"7\", \"places\": [{\"zip\": \"01\", "
       "\"near\": {\"year\": 3}}, {\"zip\": \"02\"}]}, \"note\": null}\n"},
      {"minimax_m3", "one element for each item, nothing in a list, and JSON after all",
       "]<]minimax[>[<tool_call>]<]minimax[>[<invoke "
       "name=\"search\">]<]minimax[>[<tags>a]<]minimax[>[</"
       "tags>\n]<]minimax[>[<tags>b]<]minimax[>[</tags>]<]minimax[>[<filters>{\"year\": "
       "1}]<]minimax[>[</filters>]<]minimax[>[</invoke>]<]minimax[>[<invoke "
       "name=\"search\">]<]minimax[>[<tags>]<]minimax[>[</"
       "tags>]<]minimax[>[<filters>]<]minimax[>[</filters>]<]minimax[>[</invoke>]<]minimax[>[</"
       "tool_call>",
       "call 0 search: {\"tags\": [\"a\", \"b\"], \"filters\": {\"year\": 1}}\ncall 1 search: "
       "{\"tags\": [], \"filters\": {}}\n"},
      {"minimax_m3", "a tool that nobody described",
       "]<]minimax[>[<tool_call>]<]minimax[>[<invoke "
       "name=\"move\">]<]minimax[>[<to>]<]minimax[>[<x>1]<]minimax[>[</"
       "x>]<]minimax[>[<x>2]<]minimax[>[</x>]<]minimax[>[</"
       "to>]<]minimax[>[<by>]<]minimax[>[<item>true]<]minimax[>[</item>]<]minimax[>[</"
       "by>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>",
       "call 0 move: {\"to\": {\"x\": [1, 2]}, \"by\": [true]}\n"},
      {"minimax_m3", "a parameter that is not closed",
       "]<]minimax[>[<tool_call>]<]minimax[>[<invoke "
       "name=\"get_weather\">]<]minimax[>[<city>Rome]<]minimax[>[</invoke>]<]minimax[>[</"
       "tool_call>ok",
       "call 0 get_weather: {\"city\": \"Rome\"}\nsay: ok\n"},
      {"minimax_m3", "a block that holds none",
       "]<]minimax[>[<tool_call>\nnothing]<]minimax[>[</tool_call>",
       "say: ]<]minimax[>[<tool_call>\\nnothing]<]minimax[>[</tool_call>\n"},
      {"minimax_m3", "cut off within a text",
       "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"get_weather\">]<]minimax[>[<city>Ro",
       "call 0 get_weather: {\"city\": \"Ro\n", "", true},
      {"dsml", "types said",
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
       "name=\"city\" string=\"true\">12</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
       "string=\"false\">12</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
       "</｜DSML｜function_calls>",
       "call 0 get_weather: {\"city\": \"12\", \"days\": 12}\n"},
  };
  return cases;
}

}  // namespace macrame::runtime::markup
