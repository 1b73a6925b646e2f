// Families that write calls between control tokens of their own.

#include "tests/unit/runtime/serving/markup/transcripts.h"

namespace macrame::runtime::markup {

const std::vector<TranscriptCase>& ControlTranscripts() {
  static const std::vector<TranscriptCase> cases = {
      {"kimi", "two in a section",
       "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
       "<|tool_call_argument_begin|>{\"city\": \"Rome\"}<|tool_call_end|><|tool_call_begin|>"
       "functions.get_time:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
       "<|tool_calls_section_end|>",
       "say: I look.\ncall 0 get_weather: {\"city\": \"Rome\"}\ncall 1 get_time: {}\n"},
      {"kimi", "reasoning that the section ends",
       "<think>Hm. <|tool_calls_section_begin|> <|tool_call_begin|>functions.get_time:0 "
       "<|tool_call_argument_begin|> {} <|tool_call_end|> <|tool_calls_section_end|>",
       "think: Hm.\ncall 0 get_time: {}\n"},
      {"kimi", "no section",
       "<|tool_call_begin|>functions.get_time:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
       "call 0 get_time: {}\n"},
      {"kimi", "broken arguments",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
       "<|tool_call_argument_begin|>{\"city\": ?}<|tool_call_end|><|tool_calls_section_end|>ok",
       "call 0 get_weather: {\"city\": ?}\nsay: ok\n"},
      {"deepseek_v3", "in fences",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
       "{\"city\": \"Rome\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>"
       "get_time\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "call 0 get_weather: {\"city\": \"Rome\"}\ncall 1 get_time: {}\n"},
      {"deepseek_v31", "name and arguments",
       "Hm.</think>I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
       "{\"city\": \"Rome\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "think: Hm.\nsay: I look.\ncall 0 get_weather: {\"city\": \"Rome\"}\n",
       "<｜Assistant｜><think>"},
      {"deepseek_v31", "no separator", "<｜tool▁calls▁begin｜>what",
       "say: <｜tool▁calls▁begin｜>what\n"},
      {"gemma4", "values of every kind",
       "<|tool_call>call:search{filters:{a:{b:1.5},c:true},tags:[<|\"|>x, {y}<|\"|>,2],"
       "note:<|\"|>say \"hi\"\n<|\"|>}<tool_call|>",
       "call 0 search: {\"filters\": {\"a\": {\"b\": 1.5}, \"c\": true}, \"tags\": [\"x, {y}\", "
       "2], "
       "\"note\": \"say \\\"hi\\\"\\n\"}\n"},
      {"gemma4", "two behind one another",
       "<|tool_call>call:get-time{}call:get_weather{city:<|\"|>Rome<|\"|>}<tool_call|>",
       "call 0 get-time: {}\ncall 1 get_weather: {\"city\": \"Rome\"}\n"},
      {"gemma4", "its channel of thought", "<|channel>thought\nHm.\n<channel|>Hello.",
       "think: Hm.\nsay: Hello.\n"},
      {"gemma4", "cut off in a text", "<|tool_call>call:get_weather{city:<|\"|>Ro",
       "call 0 get_weather: {\"city\": \"Ro\n", "", true},
      {"gemma4", "broken", "<|tool_call>call:get_weather{city:<|\"|>Rome<|\"|>;}<tool_call|>ok",
       "call 0 get_weather: {\"city\": \"Rome\";}\nsay: ok\n"},
      {"function_gemma", "its quotes",
       "<start_function_call>call:get_weather{city:<escape>Rome<escape>,days:2}"
       "<end_function_call>",
       "call 0 get_weather: {\"city\": \"Rome\", \"days\": 2}\n"},
      {"harmony", "reasoning and answer",
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>"
       "Hello.<|return|>",
       "think: Hm.\nsay: Hello.\n"},
      {"harmony", "words and a call",
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>"
       "I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
       "<|constrain|>json<|message|>{\"city\": \"Rome\"}<|call|>",
       "think: Hm.\nsay: I look.\ncall 0 get_weather: {\"city\": \"Rome\"}\n"},
      {"harmony", "the recipient before the channel",
       "<|channel|>analysis<|message|>A.<|end|><|start|>assistant to=functions.get_time<|channel|>"
       "commentary json<|message|>{}<|call|>",
       "think: A.\ncall 0 get_time: {}\n"},
      {"harmony", "the recipient at once",
       " to=functions.get_time<|channel|>commentary <|constrain|>json<|message|>{}",
       "call 0 get_time: {}\n"},
      {"harmony", "a call in the channel of reasoning",
       "<|channel|>analysis to=functions.get_time code<|message|>{}<|call|>",
       "call 0 get_time: {}\n"},
      {"harmony", "cut off in reasoning", "<|channel|>analysis<|message|>Let me", "think: Let me\n",
       "", true},
      {"harmony", "no end between messages",
       "<|channel|>analysis<|message|>A<|start|>assistant<|channel|>final<|message|>B<|channel|>"
       "final<|message|>C",
       "think: A\nsay: B\\nC\n"},
      {"harmony", "no header", "Hello there.<|end|>", "say: Hello there.\n"},
      {"harmony", "a header that is none", "<|channel|>final Hello.<|end|>", "say: final Hello.\n"},
  };
  return cases;
}

}  // namespace macrame::runtime::markup
