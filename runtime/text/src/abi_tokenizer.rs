//! The tokenizer's part of the C ABI.

use std::sync::Arc;

use crate::abi::{borrowed, drop_handle, give, guard, ids_of, Bytes, Ids, Status, Text};
use crate::prompt_limit::{encode_bounded, load_bounded, PromptLimit};
use crate::stream;
use crate::tokenizer;

/// A loaded tokenizer. Any thread may use it, several at once too.
pub struct TokenizerHandle(pub(crate) Arc<tokenizer::Tokenizer>);

/// The text of one growing answer. One thread at a time.
pub struct StreamHandle(stream::Stream);

/// Loads the tokenizer of the model in `folder`.
///
/// # Safety
/// `folder` is readable; `out` and `error` are writable or `error` is null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_tokenizer_load(
    folder: Text,
    out: *mut *mut TokenizerHandle,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let loaded = load_bounded(&folder.as_path()?)?;
        give(out, Box::into_raw(Box::new(TokenizerHandle(Arc::new(loaded)))))
    })
}

/// Frees a tokenizer; streams made from it live on.
///
/// # Safety
/// `tokenizer` is null or live, and not used again.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_tokenizer_free(tokenizer: *mut TokenizerHandle) {
    drop_handle(tokenizer);
}

/// Text to ids. `tokens_max`: `OutOfRange` for a text that has more; 0: any.
///
/// # Safety
/// `tokenizer` is live, `text` readable, `out` writable, `error` writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_tokenizer_encode(
    tokenizer: *const TokenizerHandle,
    text: Text,
    add_special_tokens: bool,
    special_tokens_in_text: bool,
    tokens_max: usize,
    out: *mut Ids,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let text = text.as_str("the text")?;
        let tokenizer = &borrowed(tokenizer)?.0;
        let limit = PromptLimit::of_tokens(tokens_max);
        let ids =
            encode_bounded(tokenizer, text, add_special_tokens, special_tokens_in_text, limit)?;
        give(out, Ids::from_vec(ids))
    })
}

/// Ids to text.
///
/// # Safety
/// `tokenizer` is live, `ids` points at `size` ids, `out` writable, `error` writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_tokenizer_decode(
    tokenizer: *const TokenizerHandle,
    ids: *const u32,
    size: usize,
    skip_special_tokens: bool,
    out: *mut Bytes,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let text = borrowed(tokenizer)?.0.decode(ids_of(ids, size)?, skip_special_tokens)?;
        give(out, Bytes::from_vec(text.into_bytes()))
    })
}

/// Number of tokens with the added ones, the id of the first token of a text or -1, and the ids
/// that end an answer.
///
/// # Safety
/// `tokenizer` is live, the out parameters are writable, `error` writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_tokenizer_facts(
    tokenizer: *const TokenizerHandle,
    vocab_size: *mut usize,
    bos_id: *mut i64,
    eos_ids: *mut Ids,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let tokenizer = &borrowed(tokenizer)?.0;
        give(vocab_size, tokenizer.vocab_size())?;
        give(bos_id, tokenizer.bos_id().map_or(-1, i64::from))?;
        give(eos_ids, Ids::from_vec(tokenizer.eos_ids()))
    })
}

/// The id of the token spelled `token`, or -1.
///
/// # Safety
/// `tokenizer` is live, `token` readable, `out` writable, `error` writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_tokenizer_token_id(
    tokenizer: *const TokenizerHandle,
    token: Text,
    out: *mut i64,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let id = borrowed(tokenizer)?.0.token_to_id(token.as_str("the token")?);
        give(out, id.map_or(-1, i64::from))
    })
}

/// How the token `id` is spelled in the vocabulary; `known` says whether there is one.
///
/// # Safety
/// `tokenizer` is live, `known` and `out` writable, `error` writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_tokenizer_token(
    tokenizer: *const TokenizerHandle,
    id: u32,
    known: *mut bool,
    out: *mut Bytes,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let token = borrowed(tokenizer)?.0.id_to_token(id);
        give(known, token.is_some())?;
        give(out, Bytes::from_vec(token.unwrap_or_default().into_bytes()))
    })
}

/// Begins the text of a new answer.
///
/// # Safety
/// `tokenizer` is live, `out` writable, `error` writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_stream_new(
    tokenizer: *const TokenizerHandle,
    skip_special_tokens: bool,
    out: *mut *mut StreamHandle,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let made = stream::Stream::new(borrowed(tokenizer)?.0.clone(), skip_special_tokens);
        give(out, Box::into_raw(Box::new(StreamHandle(made))))
    })
}

/// Takes the next id and gives the text that is certain now, often none.
///
/// # Safety
/// `stream` is live and used by this thread alone, `out` writable, `error` writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_stream_push(
    stream: *mut StreamHandle,
    id: u32,
    out: *mut Bytes,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        borrowed(stream)?;
        give(out, Bytes::from_vec((*stream).0.push(id)?.into_bytes()))
    })
}

/// Gives what is still held back and makes the stream ready for a new answer.
///
/// # Safety
/// As `macrame_text_stream_push`.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_stream_finish(
    stream: *mut StreamHandle,
    out: *mut Bytes,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        borrowed(stream)?;
        give(out, Bytes::from_vec((*stream).0.finish()?.into_bytes()))
    })
}

/// Frees a stream.
///
/// # Safety
/// `stream` is null or live, and not used again.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_stream_free(stream: *mut StreamHandle) {
    drop_handle(stream);
}
