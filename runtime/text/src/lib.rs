//! The text side of Macrame: tokenizers, chat templates, grammars and safetensors headers.
//!
//! Everything in here judges files and texts that somebody else wrote. So each size is checked before
//! memory is taken for it, each template runs under bounds (see `bounded`), what can't be stopped runs
//! in a process that can (see `worker`), and no panic leaves through the C ABI (see `abi`). C++ reaches this crate only through `macrame_text.h`.

pub mod abi;
mod abi_chat;
mod abi_grammar;
mod abi_safetensors;
mod abi_tokenizer;
mod abi_worker;
mod bounded;
mod chat;
mod error;
mod files;
mod grammar;
mod grammar_room;
mod jinja;
mod json_reader;
mod markers;
mod prompt_limit;
mod python_json;
mod python_text;
mod safetensors_header;
mod special_tokens;
mod stream;
mod strftime;
mod tame;
mod template;
mod token_table;
mod token_width;
mod tokenizer;
mod wire;
mod worker;
mod worker_loop;

pub use chat::{encode_chat, render_chat, RawChat};
pub use error::{Code, TextError};
pub use grammar::{Engine, Kind, Matcher, GRAMMAR_MAX_BYTES};
pub use prompt_limit::{encode_bounded, load_bounded, PromptLimit, ENCODE_LIMIT};
pub use safetensors_header::Header;
pub use template::{ChatRequest, ChatTemplate};
pub use tokenizer::Tokenizer;

/// Counts what a bounded render allocates; everybody else's requests pass straight through.
#[global_allocator]
static ALLOCATOR: bounded::CountingAllocator = bounded::CountingAllocator;
