//! Answers with a structure: which tokens may come next, by the crate `llguidance`.
//!
//! An `Engine` stands for a model's vocabulary, a `Matcher` for one answer in the making. Grammars
//! come from clients: their size, the work of compiling them, the states that they unfold into and the
//! work of each mask are bounded (`Limits` below). One that is not plain (see `tame`) is compiled by a
//! worker process first, which can be ended; it is compiled here once that went well, because the
//! same work then ends here as well.
//!
//! Requests for the same grammar share what was compiled, for as long as they wait. An answer has
//! tables of its own from the first token on that is held to it. What all of these hold together is
//! bounded (`grammar_room`).

use std::collections::VecDeque;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{
    ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, INVALID_TOKEN,
};
use llguidance::{earley::SlicedBiasComputer, ParserFactory};
use serde_json::{json, Value};

use crate::bounded::{self, Overrun};
use crate::error::{Code, Result, TextError};
use crate::grammar_room::{Held, Room};
use crate::tame::{is_plain_choice, is_plain_schema};
use crate::token_table::TokenTable;
use crate::tokenizer::Tokenizer;
use crate::wire::Writer;
use crate::worker::{Pool, COMPILE};

/// Of a schema, an expression, a grammar or a list of choices.
pub const GRAMMAR_MAX_BYTES: usize = 128 << 10;
/// Choices of a list.
pub const CHOICES_MAX: usize = 4096;
/// Compiled grammars that are kept for the next request that brings the same.
const GRAMMARS_KEPT: usize = 8;
/// Memory of compiling, beside 64 times the size of the grammar.
const COMPILE_MEMORY_BYTES: usize = 192 << 20;
/// Wall-clock limit of compiling; real schemas take some milliseconds.
const COMPILE_LIMIT: Duration = Duration::from_secs(5);
/// States that one answer's grammar may unfold into, some 1 to 2 kB each.
const LEXER_STATES_MAX: usize = 30_000;
/// What stands between the tokens of a JSON text: no white space but the one blank that Python's
/// `json.dumps` and most training texts have behind a comma or a colon. More of it only costs tokens,
/// and a model that is at a loss writes it until its answer is full.
const ITEM_SEPARATOR: &str = ", ?";
const KEY_SEPARATOR: &str = ": ?";

/// What a compiled grammar may hold.
const HELD_MAX_BYTES: usize = 64 << 20;
/// All those that are kept.
const KEPT_MAX_BYTES: usize = 64 << 20;
/// All those that requests have, and the tables of all answers under way.
const ROOM_BYTES: usize = 512 << 20;
/// Of compiling what a worker has compiled: beside other work it takes longer.
const KNOWN_COMPILE_LIMIT: Duration = Duration::from_secs(30);

/// What a grammar is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A JSON schema.
    JsonSchema = 1,
    /// Any JSON object; the source is not looked at.
    JsonObject = 2,
    /// A regular expression in the syntax of Rust's crate `regex`, for the whole answer.
    Regex = 3,
    /// llguidance's dialect of Lark.
    Lark = 4,
    /// A list of strings in JSON: one of them is the answer.
    Choice = 5,
}

impl Kind {
    pub fn of(number: u32) -> Result<Kind> {
        let all = [Kind::JsonSchema, Kind::JsonObject, Kind::Regex, Kind::Lark, Kind::Choice];
        all.into_iter()
            .find(|kind| *kind as u32 == number)
            .ok_or_else(|| TextError::new(Code::Internal, format!("no grammar has kind {number}")))
    }

    fn name(self) -> &'static str {
        match self {
            Kind::JsonSchema => "the JSON schema",
            Kind::JsonObject => "the grammar of JSON objects",
            Kind::Regex => "the regular expression",
            Kind::Lark => "the grammar",
            Kind::Choice => "the list of choices",
        }
    }
}

/// A grammar that nothing was said by yet. It never changes.
struct Compiled {
    kind: Kind,
    matcher: Mutex<llguidance::Matcher>,
    held: Held,
}

impl Compiled {
    /// Tables for one answer.
    fn begin(&self, room: &Arc<Room>) -> Result<Begun> {
        // As many bytes as a copy may have.
        let held = Held::take(room, self.held.bytes()).ok_or_else(|| too_large(self.kind))?;
        let matcher = self.matcher.lock().unwrap_or_else(|e| e.into_inner());
        let begun = Begun::copy(&matcher, room);
        drop(held);
        Ok(begun)
    }
}

/// The tables of one answer.
struct Begun {
    inner: llguidance::Matcher,
    held: Held,
}

impl Begun {
    fn copy(matcher: &llguidance::Matcher, room: &Arc<Room>) -> Begun {
        let (inner, bytes) = bounded::counted(|| matcher.deep_clone());
        Begun { inner, held: Held::new(room, usize::try_from(bytes).unwrap_or(0)) }
    }
}

struct Kept {
    source: String,
    compiled: Arc<Compiled>,
}

/// A vocabulary, made ready for masks. Any thread, several at once too.
pub struct Engine {
    factory: Arc<ParserFactory>,
    ends: Arc<Vec<u32>>,
    size: usize,
    /// The last one used is in front.
    kept: Mutex<VecDeque<Kept>>,
    room: Arc<Room>,
    workers: Option<Arc<Pool>>,
}

/// What may come next in one answer. One thread at a time.
pub struct Matcher {
    compiled: Arc<Compiled>,
    /// None until it is asked for anything.
    begun: Option<Box<Begun>>,
    room: Arc<Room>,
    size: usize,
    ends: Arc<Vec<u32>>,
}

impl Engine {
    pub fn new(tokenizer: &Tokenizer) -> Result<Engine> {
        Engine::with_room(tokenizer, ROOM_BYTES)
    }

    /// One whose grammars and answers may hold so many bytes together.
    pub fn with_room(tokenizer: &Tokenizer, bytes: usize) -> Result<Engine> {
        let table = TokenTable::of(tokenizer)?;
        let size = table.bytes.len();
        let mut words = table.bytes;
        for (id, spelled) in &table.control {
            let word = &mut words[*id as usize];
            word.push(TokTrie::SPECIAL_TOKEN_MARKER);
            word.extend_from_slice(spelled.as_bytes());
        }
        let ends: Vec<u32> =
            tokenizer.eos_ids().into_iter().filter(|id| (*id as usize) < size).collect();
        let first_end = ends.first().copied().unwrap_or(INVALID_TOKEN);
        let mut trie = TokTrie::from(&TokRxInfo::new(size as u32, first_end), &words);
        if ends.len() > 1 {
            trie = trie.with_eos_tokens(&ends);
        }
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|e| TextError::new(Code::Internal, format!("no grammar engine: {e}")))?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.verbose_errors = false;
        limits.max_lexer_states = LEXER_STATES_MAX;
        let kept = Mutex::new(VecDeque::new());
        let workers = tokenizer.workers().cloned();
        let (factory, ends, room) = (Arc::new(factory), Arc::new(ends), Room::new(bytes));
        Ok(Engine { factory, ends, size, kept, room, workers })
    }

    /// Ids that a mask tells of: those from 0 up to this one.
    pub fn size(&self) -> usize {
        self.size
    }

    /// What its grammars and answers hold, those included that are kept for the next request.
    pub fn bytes_held(&self) -> usize {
        self.room.held()
    }

    /// A matcher of an answer that has not begun.
    pub fn compile(&self, kind: Kind, source: &str) -> Result<Matcher> {
        if source.len() > GRAMMAR_MAX_BYTES {
            return Err(TextError::invalid(format!(
                "{} has {} bytes, more than {GRAMMAR_MAX_BYTES}",
                kind.name(),
                source.len()
            )));
        }
        let kept = self.find(kind, source);
        let compiled = match kept {
            Some(compiled) => compiled,
            None => {
                let (matcher, bytes) = self.compile_new(kind, source)?;
                let held = Held::take(&self.room, bytes).ok_or_else(|| too_large(kind))?;
                let compiled = Arc::new(Compiled { kind, matcher: Mutex::new(matcher), held });
                self.keep(Kept { source: source.into(), compiled: compiled.clone() });
                compiled
            }
        };
        let (room, ends) = (self.room.clone(), self.ends.clone());
        Ok(Matcher { compiled, begun: None, room, size: self.size, ends })
    }

    fn find(&self, kind: Kind, source: &str) -> Option<Arc<Compiled>> {
        let mut kept = self.kept.lock().unwrap_or_else(|e| e.into_inner());
        let at = kept.iter().position(|one| one.compiled.kind == kind && one.source == source)?;
        let found = kept.remove(at)?;
        let compiled = found.compiled.clone();
        kept.push_front(found);
        Some(compiled)
    }

    fn keep(&self, one: Kept) {
        let mut kept = self.kept.lock().unwrap_or_else(|e| e.into_inner());
        kept.push_front(one);
        kept.truncate(GRAMMARS_KEPT);
        while kept.iter().map(|one| one.compiled.held.bytes()).sum::<usize>() > KEPT_MAX_BYTES {
            kept.pop_back();
        }
    }

    fn compile_new(&self, kind: Kind, source: &str) -> Result<(llguidance::Matcher, usize)> {
        let budget = COMPILE_MEMORY_BYTES + 64 * source.len();
        let workers = self.workers.as_ref().filter(|workers| workers.is_usable());
        let Some(workers) = workers.filter(|_| !is_plain(kind, source)) else {
            return self.compile_bounded(kind, source, budget, COMPILE_LIMIT);
        };
        let bytes = source.as_bytes();
        let request = Writer::default().number(COMPILE).number(kind as u64).bytes(bytes).end();
        workers.ask(&request, COMPILE_LIMIT).unwrap_or_else(|over| Err(overrun(kind, over)))?;
        self.compile_bounded(kind, source, 2 * budget, KNOWN_COMPILE_LIMIT)
    }

    /// The grammar and what it holds.
    fn compile_bounded(
        &self,
        kind: Kind,
        source: &str,
        budget: usize,
        limit: Duration,
    ) -> Result<(llguidance::Matcher, usize)> {
        let (factory, text) = (self.factory.clone(), source.to_string());
        let run = bounded::run("grammar", budget, limit, move || {
            // What the crate itself gives up on with a panic is the grammar's fault.
            let compiled = catch_unwind(AssertUnwindSafe(|| compile(&factory, kind, &text)));
            let compiled = compiled.unwrap_or_else(|_| {
                Err(TextError::invalid(format!("{} can't be compiled", kind.name())))
            })?;
            let held = bounded::bytes_held();
            match held > HELD_MAX_BYTES {
                true => Err(overrun(kind, Overrun::Memory)),
                false => Ok((compiled, held)),
            }
        });
        run.unwrap_or_else(|over| Err(overrun(kind, over)))
    }
}

fn is_plain(kind: Kind, source: &str) -> bool {
    match kind {
        Kind::JsonObject => true,
        Kind::JsonSchema => is_plain_schema(source),
        Kind::Choice => is_plain_choice(source),
        Kind::Regex | Kind::Lark => false,
    }
}

fn overrun(kind: Kind, over: Overrun) -> TextError {
    let what = match over {
        Overrun::Memory => "more memory than is given to it".to_string(),
        Overrun::Time => format!("more than {} seconds", COMPILE_LIMIT.as_secs()),
    };
    TextError::invalid(format!(
        "compiling {} takes {what}; send a smaller or simpler one",
        kind.name()
    ))
}

fn compile(factory: &ParserFactory, kind: Kind, source: &str) -> Result<llguidance::Matcher> {
    let grammar = match kind {
        Kind::JsonSchema => json_grammar(parse_json(kind, source)?)?,
        Kind::JsonObject => json_grammar(json!({"type": "object"}))?,
        Kind::Regex => TopLevelGrammar::from_regex(source),
        Kind::Lark => TopLevelGrammar::from_lark(source.to_string()),
        Kind::Choice => TopLevelGrammar::from_regex(&choices_regex(parse_json(kind, source)?)?),
    };
    let mut matcher = llguidance::Matcher::new(factory.create_parser(grammar));
    // The first mask, because it unfolds what all of them need.
    let first = matcher.compute_mask_or_eos();
    match first {
        Ok(_) => Ok(matcher),
        Err(e) => Err(TextError::invalid(format!("{} can't be used: {}", kind.name(), reason(&e)))),
    }
}

fn parse_json(kind: Kind, source: &str) -> Result<Value> {
    serde_json::from_str(source)
        .map_err(|e| TextError::invalid(format!("{} is not JSON: {e}", kind.name())))
}

fn json_grammar(schema: Value) -> Result<TopLevelGrammar> {
    let mut schema = match schema {
        Value::Bool(true) => json!({}),
        Value::Object(_) => schema,
        other => {
            let text = "the JSON schema is neither an object nor true";
            return Err(TextError::invalid(match other {
                Value::Bool(false) => "no text matches the JSON schema false".to_string(),
                _ => text.to_string(),
            }));
        }
    };
    // oneOf as anyOf: whether a second branch matches too is not looked at.
    schema["x-guidance"] = json!({
        "whitespace_flexible": false,
        "item_separator": ITEM_SEPARATOR,
        "key_separator": KEY_SEPARATOR,
        "coerce_one_of": true,
    });
    Ok(TopLevelGrammar::from_json_schema(schema))
}

fn choices_regex(choices: Value) -> Result<String> {
    let bad = |text: &str| Err(TextError::invalid(format!("the list of choices {text}")));
    let Value::Array(list) = choices else { return bad("is no list") };
    if list.is_empty() || list.len() > CHOICES_MAX {
        return bad(&format!("has {} entries, not 1 to {CHOICES_MAX}", list.len()));
    }
    let mut regex = String::new();
    for choice in &list {
        let Value::String(text) = choice else { return bad("holds something else than text") };
        if text.is_empty() {
            return bad("holds an empty text");
        }
        if !regex.is_empty() {
            regex.push('|');
        }
        for c in text.chars() {
            if c.is_ascii() && !c.is_ascii_alphanumeric() {
                regex.push_str(&format!("\\x{:02x}", c as u32));
            } else {
                regex.push(c);
            }
        }
    }
    Ok(regex)
}

/// An error of the crate as one line.
fn plain(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let text = text.split("<backtrace>").next().unwrap_or_default().replace("<non-verbose/>", "");
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((at, _)) = line.char_indices().nth(400) {
        line.truncate(at);
        line.push('…');
    }
    line
}

fn reason(error: &impl std::fmt::Display) -> String {
    match plain(error) {
        dead_end if dead_end.contains("NoExtensionBias") => {
            "the model's vocabulary has no token for what it asks".to_string()
        }
        other => other,
    }
}

fn failed(error: impl std::fmt::Display) -> TextError {
    let text = format!("the answer's grammar can't be followed any further: {}", reason(&error));
    TextError::invalid(text)
}

fn too_large(kind: Kind) -> TextError {
    TextError::invalid(format!(
        "{} is too large to be followed now, beside those of other requests; send a smaller or \
         simpler one, or send it again later",
        kind.name()
    ))
}

impl Matcher {
    /// A matcher at the same place that goes on by itself. Of an answer that has not begun it costs
    /// nothing.
    pub fn fork(&self) -> Matcher {
        let begun =
            self.begun.as_ref().map(|begun| Box::new(Begun::copy(&begun.inner, &self.room)));
        let (compiled, room) = (self.compiled.clone(), self.room.clone());
        Matcher { compiled, begun, room, size: self.size, ends: self.ends.clone() }
    }

    /// Does `work` with the answer's own tables and counts by how much they grow.
    fn run<T>(&mut self, work: impl FnOnce(&mut llguidance::Matcher) -> Result<T>) -> Result<T> {
        let begun = match self.begun.take() {
            Some(begun) => begun,
            None => Box::new(self.compiled.begin(&self.room)?),
        };
        let begun = self.begun.insert(begun);
        let (done, grown) = bounded::counted(|| work(&mut begun.inner));
        begun.held.change(grown);
        match begun.held.fits() {
            true => done,
            false => Err(too_large(self.compiled.kind)),
        }
    }

    /// Sets the bits of the tokens that may stand behind what was taken and `ahead`, which it must
    /// admit, and clears all others. Nothing is taken.
    pub fn mask(&mut self, ahead: &[u32], bits: &mut [u32]) -> Result<()> {
        bits.fill(0);
        if ahead.iter().any(|id| self.ends.contains(id)) {
            return self.allow_ends(bits);
        }
        if self.admitted(ahead)? < ahead.len() {
            return Err(TextError::new(Code::Internal, "a token was drafted that has no place"));
        }
        self.run(|inner| {
            inner.consume_tokens(ahead).map_err(failed)?;
            let mask = inner.compute_mask_or_eos().map_err(failed)?;
            inner.rollback(ahead.len()).map_err(failed)?;
            let words = mask.as_slice();
            let count = words.len().min(bits.len());
            bits[..count].copy_from_slice(&words[..count]);
            Ok(())
        })
    }

    fn allow_ends(&self, bits: &mut [u32]) -> Result<()> {
        for id in self.ends.iter() {
            if let Some(word) = bits.get_mut(*id as usize / 32) {
                *word |= 1 << (id % 32);
            }
        }
        Ok(())
    }

    /// The answer goes on with `id`. Whether it is over: nothing may follow.
    pub fn take(&mut self, id: u32) -> Result<bool> {
        if self.ends.contains(&id) {
            return Ok(true);
        }
        self.run(|inner| {
            if !inner.is_stopped() {
                inner.consume_token(id).map_err(failed)?;
            }
            Ok(inner.is_stopped())
        })
    }

    /// How many of `ids` may follow, one after the other.
    pub fn admitted(&mut self, ids: &[u32]) -> Result<usize> {
        if ids.is_empty() {
            return Ok(0);
        }
        // An id beyond the vocabulary, which a padded model may be asked for, would end the matcher.
        let known = ids.iter().position(|id| *id as usize >= self.size).unwrap_or(ids.len());
        self.run(|inner| inner.validate_tokens(&ids[..known]).map_err(failed))
    }
}
