// The C ABI of the Rust library macrame-text. Made by cbindgen from src/abi*.rs: don't edit.
// C++ calls it through tokenizer.h, chat_template.h and safetensors_header.h.

#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A vocabulary, made ready for grammars. Any thread may use it, several at once too.
typedef struct MacrameTextGrammarEngineHandle MacrameTextGrammarEngineHandle;

// A checked header; what it lends out lives as long as it does.
typedef struct MacrameTextHeaderHandle MacrameTextHeaderHandle;

// What may come next in one answer. One thread at a time.
typedef struct MacrameTextMatcherHandle MacrameTextMatcherHandle;

// The text of one growing answer. One thread at a time.
typedef struct MacrameTextStreamHandle MacrameTextStreamHandle;

// A compiled chat template. Any thread may use it, several at once too.
typedef struct MacrameTextTemplateHandle MacrameTextTemplateHandle;

// A loaded tokenizer. Any thread may use it, several at once too.
typedef struct MacrameTextTokenizerHandle MacrameTextTokenizerHandle;

// Bytes that the library owns: hand them back with `macrame_text_bytes_free`.
typedef struct {
  uint8_t *data;
  size_t size;
} MacrameTextBytes;

// Ids that the library owns: hand them back with `macrame_text_ids_free`.
typedef struct {
  uint32_t *data;
  size_t size;
} MacrameTextIds;

// Zero is success; else a number of `absl::StatusCode`, and the error text is set.
typedef int32_t MacrameTextStatus;

// Text that the caller owns, for the length of the call. UTF-8, no end mark needed.
typedef struct {
  const uint8_t *data;
  size_t size;
} MacrameTextText;

// One prompt to make. Empty `tools_json` means no tools, empty `kwargs_json` no more variables.
typedef struct {
  MacrameTextText messages_json;
  MacrameTextText tools_json;
  MacrameTextText kwargs_json;
  bool add_generation_prompt;
  // Whether `local_unix_s` is given.
  bool has_time;
  // Seconds since 1970 on the wall clock of the place, for templates that print the date.
  int64_t local_unix_s;
  // The longest prompt in tokens, for `macrame_text_encode_chat`; 0: any.
  size_t tokens_max;
} MacrameTextChatArguments;

// One tensor of a header. All pointers are lent by the header.
typedef struct {
  MacrameTextText name;
  // As the file spells it, e.g. `BF16`.
  MacrameTextText dtype;
  const uint64_t *shape;
  size_t shape_size;
  // Byte range `[begin, end)` counted from the start of the file.
  uint64_t begin;
  uint64_t end;
} MacrameTextTensorView;

// One pair of a header's free text. All pointers are lent by the header.
typedef struct {
  MacrameTextText key;
  MacrameTextText value;
} MacrameTextMetadataView;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Frees bytes that a function of this library gave; null is fine.
//
// # Safety
// `bytes` came from this library and is given back once.
void macrame_text_bytes_free(MacrameTextBytes bytes);

// Frees ids that a function of this library gave; null is fine.
//
// # Safety
// `ids` came from this library and is given back once.
void macrame_text_ids_free(MacrameTextIds ids);

// Templates and texts that this thread has made from here on are given up soon after `*flag` is
// true, where they look for it; null: none are.
//
// # Safety
// `flag` is null, or lives until it is replaced; it is written as an atomic of one byte.
void macrame_text_watch_cancellation(const bool *flag);

// Loads and compiles the chat template of the model in `folder`.
//
// # Safety
// `folder` is readable; `out` is writable; `error` is writable or null.
MacrameTextStatus macrame_text_template_load(MacrameTextText folder,
                                             MacrameTextTemplateHandle **out,
                                             MacrameTextBytes *error);

// Frees a template.
//
// # Safety
// `template` is null or live, and not used again.
void macrame_text_template_free(MacrameTextTemplateHandle *template_);

// The template's text, with tools or without: some models have one for each.
//
// # Safety
// `template` is live, `out` writable, `error` writable or null.
MacrameTextStatus macrame_text_template_source(const MacrameTextTemplateHandle *template_,
                                               bool with_tools,
                                               MacrameTextBytes *out,
                                               MacrameTextBytes *error);

// The prompt as text.
//
// # Safety
// `template` is live, the texts of `arguments` are readable, `out` writable, `error` too or null.
MacrameTextStatus macrame_text_template_render(const MacrameTextTemplateHandle *template_,
                                               const MacrameTextChatArguments *arguments,
                                               MacrameTextBytes *out,
                                               MacrameTextBytes *error);

// The prompt as ids, with control tokens in the caller's strings read as plain text. `OutOfRange`
// for one that is longer than `tokens_max`.
//
// # Safety
// As `macrame_text_template_render`; `tokenizer` is live.
MacrameTextStatus macrame_text_encode_chat(const MacrameTextTokenizerHandle *tokenizer,
                                           const MacrameTextTemplateHandle *template_,
                                           const MacrameTextChatArguments *arguments,
                                           MacrameTextIds *out,
                                           MacrameTextBytes *error);

// Makes the engine of a vocabulary, which takes a part of a second for a large one. `size`: the ids
// below it are those that masks tell of.
//
// # Safety
// `tokenizer` is live; `out` and `size` are writable; `error` is writable or null.
MacrameTextStatus macrame_text_grammar_engine_new(const MacrameTextTokenizerHandle *tokenizer,
                                                  MacrameTextGrammarEngineHandle **out,
                                                  size_t *size,
                                                  MacrameTextBytes *error);

// Frees an engine; matchers made with it live on.
//
// # Safety
// `engine` is null or live, and not used again.
void macrame_text_grammar_engine_free(MacrameTextGrammarEngineHandle *engine);

// A matcher of an answer that has not begun. `kind`: 1 a JSON schema, 2 any JSON object, 3 a
// regular expression, 4 a grammar in Lark, 5 a list of choices in JSON.
//
// # Safety
// `engine` is live, `source` readable, `out` writable, `error` writable or null.
MacrameTextStatus macrame_text_grammar_compile(const MacrameTextGrammarEngineHandle *engine,
                                               uint32_t kind,
                                               MacrameTextText source,
                                               MacrameTextMatcherHandle **out,
                                               MacrameTextBytes *error);

// A matcher at the same place that goes on by itself.
//
// # Safety
// `matcher` is live and used by this thread alone, `out` writable, `error` writable or null.
MacrameTextStatus macrame_text_matcher_fork(const MacrameTextMatcherHandle *matcher,
                                            MacrameTextMatcherHandle **out,
                                            MacrameTextBytes *error);

// Sets the bits of the tokens that may stand behind what was taken and `ahead`, which must have a
// place there; clears all others. Bit i of word j stands for id 32 j + i. Nothing is taken.
//
// # Safety
// `matcher` is live and used by this thread alone, `ahead` points at `ahead_size` ids, `bits` at
// `words` writable words; `error` is writable or null.
MacrameTextStatus macrame_text_matcher_mask(MacrameTextMatcherHandle *matcher,
                                            const uint32_t *ahead,
                                            size_t ahead_size,
                                            uint32_t *bits,
                                            size_t words,
                                            MacrameTextBytes *error);

// The answer goes on with `id`; `is_over`: nothing may follow.
//
// # Safety
// `matcher` is live and used by this thread alone, `is_over` writable, `error` writable or null.
MacrameTextStatus macrame_text_matcher_take(MacrameTextMatcherHandle *matcher,
                                            uint32_t id,
                                            bool *is_over,
                                            MacrameTextBytes *error);

// How many of the ids may follow, one after the other.
//
// # Safety
// `matcher` is live and used by this thread alone, `ids` points at `size` ids, `out` is writable,
// `error` writable or null.
MacrameTextStatus macrame_text_matcher_admitted(MacrameTextMatcherHandle *matcher,
                                                const uint32_t *ids,
                                                size_t size,
                                                size_t *out,
                                                MacrameTextBytes *error);

// Frees a matcher.
//
// # Safety
// `matcher` is null or live, and not used again.
void macrame_text_matcher_free(MacrameTextMatcherHandle *matcher);

// Reads and checks the header of the safetensors file at `path`.
//
// # Safety
// `path` is readable; the out parameters are writable; `error` is writable or null.
MacrameTextStatus macrame_text_safetensors_read(MacrameTextText path,
                                                MacrameTextHeaderHandle **out,
                                                size_t *tensors,
                                                size_t *metadata,
                                                uint64_t *file_bytes,
                                                MacrameTextBytes *error);

// Lends the tensor at `index`, in the order of the bytes in the file.
//
// # Safety
// `header` is live, `out` writable, `error` writable or null.
MacrameTextStatus macrame_text_safetensors_tensor(const MacrameTextHeaderHandle *header,
                                                  size_t index,
                                                  MacrameTextTensorView *out,
                                                  MacrameTextBytes *error);

// Lends the pair of free text at `index`.
//
// # Safety
// `header` is live, `out` writable, `error` writable or null.
MacrameTextStatus macrame_text_safetensors_metadata(const MacrameTextHeaderHandle *header,
                                                    size_t index,
                                                    MacrameTextMetadataView *out,
                                                    MacrameTextBytes *error);

// Frees a header.
//
// # Safety
// `header` is null or live, and not used again.
void macrame_text_safetensors_free(MacrameTextHeaderHandle *header);

// Loads the tokenizer of the model in `folder`.
//
// # Safety
// `folder` is readable; `out` and `error` are writable or `error` is null.
MacrameTextStatus macrame_text_tokenizer_load(MacrameTextText folder,
                                              MacrameTextTokenizerHandle **out,
                                              MacrameTextBytes *error);

// Frees a tokenizer; streams made from it live on.
//
// # Safety
// `tokenizer` is null or live, and not used again.
void macrame_text_tokenizer_free(MacrameTextTokenizerHandle *tokenizer);

// Text to ids. `tokens_max`: `OutOfRange` for a text that has more; 0: any.
//
// # Safety
// `tokenizer` is live, `text` readable, `out` writable, `error` writable or null.
MacrameTextStatus macrame_text_tokenizer_encode(const MacrameTextTokenizerHandle *tokenizer,
                                                MacrameTextText text,
                                                bool add_special_tokens,
                                                bool special_tokens_in_text,
                                                size_t tokens_max,
                                                MacrameTextIds *out,
                                                MacrameTextBytes *error);

// Ids to text.
//
// # Safety
// `tokenizer` is live, `ids` points at `size` ids, `out` writable, `error` writable or null.
MacrameTextStatus macrame_text_tokenizer_decode(const MacrameTextTokenizerHandle *tokenizer,
                                                const uint32_t *ids,
                                                size_t size,
                                                bool skip_special_tokens,
                                                MacrameTextBytes *out,
                                                MacrameTextBytes *error);

// Number of tokens with the added ones, the id of the first token of a text or -1, and the ids
// that end an answer.
//
// # Safety
// `tokenizer` is live, the out parameters are writable, `error` writable or null.
MacrameTextStatus macrame_text_tokenizer_facts(const MacrameTextTokenizerHandle *tokenizer,
                                               size_t *vocab_size,
                                               int64_t *bos_id,
                                               MacrameTextIds *eos_ids,
                                               MacrameTextBytes *error);

// The id of the token spelled `token`, or -1.
//
// # Safety
// `tokenizer` is live, `token` readable, `out` writable, `error` writable or null.
MacrameTextStatus macrame_text_tokenizer_token_id(const MacrameTextTokenizerHandle *tokenizer,
                                                  MacrameTextText token,
                                                  int64_t *out,
                                                  MacrameTextBytes *error);

// How the token `id` is spelled in the vocabulary; `known` says whether there is one.
//
// # Safety
// `tokenizer` is live, `known` and `out` writable, `error` writable or null.
MacrameTextStatus macrame_text_tokenizer_token(const MacrameTextTokenizerHandle *tokenizer,
                                               uint32_t id,
                                               bool *known,
                                               MacrameTextBytes *out,
                                               MacrameTextBytes *error);

// Begins the text of a new answer.
//
// # Safety
// `tokenizer` is live, `out` writable, `error` writable or null.
MacrameTextStatus macrame_text_stream_new(const MacrameTextTokenizerHandle *tokenizer,
                                          bool skip_special_tokens,
                                          MacrameTextStreamHandle **out,
                                          MacrameTextBytes *error);

// Takes the next id and gives the text that is certain now, often none.
//
// # Safety
// `stream` is live and used by this thread alone, `out` writable, `error` writable or null.
MacrameTextStatus macrame_text_stream_push(MacrameTextStreamHandle *stream,
                                           uint32_t id,
                                           MacrameTextBytes *out,
                                           MacrameTextBytes *error);

// Gives what is still held back and makes the stream ready for a new answer.
//
// # Safety
// As `macrame_text_stream_push`.
MacrameTextStatus macrame_text_stream_finish(MacrameTextStreamHandle *stream,
                                             MacrameTextBytes *out,
                                             MacrameTextBytes *error);

// Frees a stream.
//
// # Safety
// `stream` is null or live, and not used again.
void macrame_text_stream_free(MacrameTextStreamHandle *stream);

// From here on work on texts that may take long is done by processes of `program` that run
// `macrame_text_worker_serve` when they are started with `--text-worker`; empty: of this program.
//
// # Safety
// `program` is readable; `error` is writable or null.
MacrameTextStatus macrame_text_use_workers(MacrameTextText program, MacrameTextBytes *error);

// Does the work of a parent that gave its socket as descriptor 0, until it is gone.
void macrame_text_worker_serve(void);

// Whether a text takes time and memory in proportion to its length; false for what is not UTF-8.
//
// # Safety
// `text` is readable.
bool macrame_text_is_tame(MacrameTextText text);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus
