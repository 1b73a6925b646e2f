//! A tokenizer's work under bounds: what it may take to load one, and to make ids of a text.
//!
//! A text that can't fit into the context is refused by its bytes before it is cut, and counting
//! ends when it is known not to fit. What is left takes `ENCODE_LIMIT` and memory in proportion to
//! its bytes at the most, whatever it is and whoever made the tokenizer: a tame text here, any other
//! one in a worker process (see `tame` and `worker`), and so all of them once a tame one took longer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::bounded::{self, Overrun};
use crate::error::{Code, Result, TextError};
use crate::files::TOKENIZER_FILE_MAX_BYTES;
use crate::markers::Markers;
use crate::tame::is_tame_text;
use crate::tokenizer::Tokenizer;
use crate::wire::{Reader, Writer};
use crate::worker::{Pool, ENCODE, ENCODE_PROMPT};

/// Wall-clock limit of making ids of a text; a megabyte takes 0.4 s on a busy core.
pub const ENCODE_LIMIT: Duration = Duration::from_secs(10);
/// Wall-clock limit of loading a tokenizer; 256,000 tokens take a second.
const LOAD_LIMIT: Duration = Duration::from_secs(60);
/// Memory of making ids, beside so much for each byte of the text; vocabularies of bytes take 82.
const ENCODE_MEMORY_BYTES: usize = 64 << 20;
const ENCODE_MEMORY_PER_BYTE: usize = 384;
/// Beyond, long texts get so much for each byte alone: no machine has any amount of it to spare.
const ENCODE_MEMORY_LARGE_BYTES: usize = 1 << 30;
const ENCODE_MEMORY_PER_LARGE_BYTE: usize = 96;
/// Memory of loading, beside so much for each byte of tokenizer.json.
const LOAD_MEMORY_BYTES: usize = 256 << 20;
const LOAD_MEMORY_PER_BYTE: usize = 24;

/// How long a prompt may be, in tokens.
#[derive(Clone, Copy, Debug)]
pub struct PromptLimit {
    tokens_max: usize,
}

impl PromptLimit {
    /// 0: as long as it wants.
    pub fn of_tokens(tokens_max: usize) -> PromptLimit {
        PromptLimit { tokens_max: if tokens_max == 0 { usize::MAX } else { tokens_max } }
    }

    pub fn none() -> PromptLimit {
        PromptLimit::of_tokens(0)
    }

    /// Up to here tokens are counted, so that who sends too much learns how much.
    pub fn counted_max(self) -> usize {
        self.tokens_max.saturating_mul(4)
    }

    pub fn check_bytes(self, bytes: usize, longest_token_bytes: Option<usize>) -> Result<()> {
        let Some(longest) = longest_token_bytes else { return Ok(()) };
        let least = bytes.div_ceil(longest);
        if least <= self.tokens_max {
            return Ok(());
        }
        Err(self.too_long(format!("{bytes} bytes, at least {least} tokens")))
    }

    pub fn too_many(self, counted: usize) -> TextError {
        self.too_long(format!("more than {counted} tokens"))
    }

    fn too_long(self, what: String) -> TextError {
        TextError::new(
            Code::OutOfRange,
            format!(
                "the prompt has {what}, the model was loaded with a context of {}",
                self.tokens_max
            ),
        )
    }
}

/// Loads the tokenizer of the model in `folder` as a bounded job.
pub fn load_bounded(folder: &Path) -> Result<Tokenizer> {
    let path = folder.join("tokenizer.json");
    let bytes = std::fs::metadata(&path).map_or(0, |meta| meta.len());
    let bytes = bytes.min(TOKENIZER_FILE_MAX_BYTES) as usize;
    let budget = LOAD_MEMORY_BYTES + LOAD_MEMORY_PER_BYTE * bytes;
    let job_folder: PathBuf = folder.to_path_buf();
    let loaded =
        bounded::run("tokenizer", budget, LOAD_LIMIT, move || Tokenizer::load(&job_folder));
    let loaded = loaded.map(|loaded| loaded.map(|tokenizer| tokenizer.with_workers(folder)));
    loaded.unwrap_or_else(|over| {
        let what = match over {
            Overrun::Memory => format!("asks for more than {} MiB of memory", budget >> 20),
            Overrun::Time => format!("takes longer than {} s", LOAD_LIMIT.as_secs()),
        };
        Err(TextError::data_loss(format!(
            "{} is not a usable tokenizer: to load it {what}; get the model anew from a source \
             that you trust",
            path.display()
        )))
    })
}

/// `Tokenizer::encode_within` under bounds.
pub fn encode_bounded(
    tokenizer: &Arc<Tokenizer>,
    text: &str,
    add_special: bool,
    special_in_text: bool,
    limit: PromptLimit,
) -> Result<Vec<u32>> {
    tokenizer.check_text(text, None, limit)?;
    if let Some(workers) = workers_for(tokenizer, text) {
        let request = Writer::default()
            .number(ENCODE)
            .number(add_special.into())
            .number(special_in_text.into())
            .number(limit.tokens_max as u64)
            .bytes(text.as_bytes())
            .end();
        return ask_for_ids(workers, &request, text.len(), ENCODE_LIMIT);
    }
    let (job_tokenizer, job_text) = (tokenizer.clone(), text.to_string());
    run(tokenizer, text.len(), move || {
        job_tokenizer.encode_within(&job_text, add_special, special_in_text, limit)
    })
}

/// `Tokenizer::encode_prompt` under bounds.
pub fn encode_prompt_bounded(
    tokenizer: &Arc<Tokenizer>,
    prompt: String,
    markers: Option<Markers>,
    limit: PromptLimit,
) -> Result<Vec<u32>> {
    tokenizer.check_text(&prompt, markers.as_ref(), limit)?;
    let bytes = prompt.len();
    if let Some(workers) = workers_for(tokenizer, &prompt) {
        let request = Writer::default()
            .number(ENCODE_PROMPT)
            .number(limit.tokens_max as u64)
            .number(markers.is_some().into())
            .bytes(markers.unwrap_or_default().to_text().as_bytes())
            .bytes(prompt.as_bytes())
            .end();
        drop(prompt);
        return ask_for_ids(workers, &request, bytes, ENCODE_LIMIT);
    }
    let job_tokenizer = tokenizer.clone();
    run(tokenizer, bytes, move || job_tokenizer.encode_prompt(&prompt, markers.as_ref(), limit))
}

/// The processes that `text` has to be given to; none: it is worked on here.
fn workers_for<'a>(tokenizer: &'a Tokenizer, text: &str) -> Option<&'a Arc<Pool>> {
    let workers = tokenizer.workers().filter(|workers| workers.is_usable())?;
    (tokenizer.has_overrun() || !is_tame_text(text)).then_some(workers)
}

/// What a worker makes of a text of so many bytes.
pub fn ask_for_ids(
    workers: &Arc<Pool>,
    request: &[u8],
    bytes: usize,
    limit: Duration,
) -> Result<Vec<u32>> {
    match workers.ask(request, limit) {
        Ok(answer) => Reader::of(&answer?).ids(),
        Err(over) => Err(overrun(bytes, over)),
    }
}

fn budget_of(bytes: usize) -> usize {
    let budget = ENCODE_MEMORY_BYTES + ENCODE_MEMORY_PER_BYTE * bytes;
    budget.min(ENCODE_MEMORY_LARGE_BYTES.max(ENCODE_MEMORY_PER_LARGE_BYTE * bytes))
}

fn overrun(bytes: usize, over: Overrun) -> TextError {
    let what = match over {
        Overrun::Memory => format!("ask for more than {} MiB of memory", budget_of(bytes) >> 20),
        Overrun::Time => format!("take longer than {} s", ENCODE_LIMIT.as_secs()),
    };
    TextError::invalid(format!(
        "the {bytes} bytes of this prompt {what} to tokenize; send less at once"
    ))
}

fn run(
    tokenizer: &Tokenizer,
    bytes: usize,
    job: impl FnOnce() -> Result<Vec<u32>> + Send + 'static,
) -> Result<Vec<u32>> {
    bounded::run("tokenizer", budget_of(bytes), ENCODE_LIMIT, job).unwrap_or_else(|over| {
        tokenizer.note_overrun();
        Err(overrun(bytes, over))
    })
}
