//! The grammars' part of the C ABI.

use crate::abi::{borrowed, drop_handle, give, guard, ids_of, Bytes, Status, Text};
use crate::abi_tokenizer::TokenizerHandle;
use crate::error::{Code, TextError};
use crate::grammar::{Engine, Kind, Matcher};

/// A vocabulary, made ready for grammars. Any thread may use it, several at once too.
pub struct GrammarEngineHandle(Engine);

/// What may come next in one answer. One thread at a time.
pub struct MatcherHandle(Matcher);

/// Makes the engine of a vocabulary, which takes a part of a second for a large one. `size`: the ids
/// below it are those that masks tell of.
///
/// # Safety
/// `tokenizer` is live; `out` and `size` are writable; `error` is writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_grammar_engine_new(
    tokenizer: *const TokenizerHandle,
    out: *mut *mut GrammarEngineHandle,
    size: *mut usize,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let engine = Engine::new(&borrowed(tokenizer)?.0)?;
        give(size, engine.size())?;
        give(out, Box::into_raw(Box::new(GrammarEngineHandle(engine))))
    })
}

/// Frees an engine; matchers made with it live on.
///
/// # Safety
/// `engine` is null or live, and not used again.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_grammar_engine_free(engine: *mut GrammarEngineHandle) {
    drop_handle(engine);
}

/// A matcher of an answer that has not begun. `kind`: 1 a JSON schema, 2 any JSON object, 3 a
/// regular expression, 4 a grammar in Lark, 5 a list of choices in JSON.
///
/// # Safety
/// `engine` is live, `source` readable, `out` writable, `error` writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_grammar_compile(
    engine: *const GrammarEngineHandle,
    kind: u32,
    source: Text,
    out: *mut *mut MatcherHandle,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let source = source.as_str("the grammar")?;
        let made = borrowed(engine)?.0.compile(Kind::of(kind)?, source)?;
        give(out, Box::into_raw(Box::new(MatcherHandle(made))))
    })
}

/// A matcher at the same place that goes on by itself.
///
/// # Safety
/// `matcher` is live and used by this thread alone, `out` writable, `error` writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_matcher_fork(
    matcher: *const MatcherHandle,
    out: *mut *mut MatcherHandle,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let made = borrowed(matcher)?.0.fork();
        give(out, Box::into_raw(Box::new(MatcherHandle(made))))
    })
}

/// Sets the bits of the tokens that may stand behind what was taken and `ahead`, which must have a
/// place there; clears all others. Bit i of word j stands for id 32 j + i. Nothing is taken.
///
/// # Safety
/// `matcher` is live and used by this thread alone, `ahead` points at `ahead_size` ids, `bits` at
/// `words` writable words; `error` is writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_matcher_mask(
    matcher: *mut MatcherHandle,
    ahead: *const u32,
    ahead_size: usize,
    bits: *mut u32,
    words: usize,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let ahead = ids_of(ahead, ahead_size)?;
        if bits.is_null() || words > isize::MAX as usize / 4 {
            return Err(TextError::new(Code::Internal, "an out parameter is null"));
        }
        let bits = std::slice::from_raw_parts_mut(bits, words);
        matcher_of(matcher)?.mask(ahead, bits)
    })
}

/// The answer goes on with `id`; `is_over`: nothing may follow.
///
/// # Safety
/// `matcher` is live and used by this thread alone, `is_over` writable, `error` writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_matcher_take(
    matcher: *mut MatcherHandle,
    id: u32,
    is_over: *mut bool,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let over = matcher_of(matcher)?.take(id)?;
        give(is_over, over)
    })
}

/// How many of the ids may follow, one after the other.
///
/// # Safety
/// `matcher` is live and used by this thread alone, `ids` points at `size` ids, `out` is writable,
/// `error` writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_matcher_admitted(
    matcher: *mut MatcherHandle,
    ids: *const u32,
    size: usize,
    out: *mut usize,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let admitted = matcher_of(matcher)?.admitted(ids_of(ids, size)?)?;
        give(out, admitted)
    })
}

/// Frees a matcher.
///
/// # Safety
/// `matcher` is null or live, and not used again.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_matcher_free(matcher: *mut MatcherHandle) {
    drop_handle(matcher);
}

/// # Safety
/// `matcher` is null, or live and used by this thread alone.
unsafe fn matcher_of<'a>(matcher: *mut MatcherHandle) -> crate::error::Result<&'a mut Matcher> {
    matcher
        .as_mut()
        .map(|handle| &mut handle.0)
        .ok_or_else(|| TextError::new(Code::Internal, "a handle is null"))
}
