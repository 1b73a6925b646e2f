//! The chat template's part of the C ABI.

use serde_json::{Map, Value};

use crate::abi::{borrowed, drop_handle, give, guard, Bytes, Ids, Status, Text};
use crate::abi_tokenizer::TokenizerHandle;
use crate::chat::{encode_chat, render_chat};
use crate::error::{Result, TextError};
use crate::prompt_limit::PromptLimit;
use crate::template;

/// The longest messages, tools and arguments together, as JSON.
pub const CHAT_JSON_MAX_BYTES: usize = 32 << 20;

/// A compiled chat template. Any thread may use it, several at once too.
pub struct TemplateHandle(template::ChatTemplate);

/// One prompt to make. Empty `tools_json` means no tools, empty `kwargs_json` no more variables.
#[repr(C)]
pub struct ChatArguments {
    pub messages_json: Text,
    pub tools_json: Text,
    pub kwargs_json: Text,
    pub add_generation_prompt: bool,
    /// Whether `local_unix_s` is given.
    pub has_time: bool,
    /// Seconds since 1970 on the wall clock of the place, for templates that print the date.
    pub local_unix_s: i64,
    /// The longest prompt in tokens, for `macrame_text_encode_chat`; 0: any.
    pub tokens_max: usize,
}

impl ChatArguments {
    unsafe fn to_request(&self) -> Result<template::ChatRequest> {
        let total = [self.messages_json.size, self.tools_json.size, self.kwargs_json.size]
            .iter()
            .fold(0usize, |sum, size| sum.saturating_add(*size));
        if total > CHAT_JSON_MAX_BYTES {
            return Err(TextError::invalid(format!(
                "the messages have {total} bytes, more than {CHAT_JSON_MAX_BYTES}"
            )));
        }
        let kwargs = match parse(self.kwargs_json, "the template's arguments")? {
            None => Map::new(),
            Some(Value::Object(map)) => map,
            Some(_) => {
                return Err(TextError::invalid("the template's arguments must be a JSON object"))
            }
        };
        Ok(template::ChatRequest {
            messages: parse(self.messages_json, "messages")?.unwrap_or(Value::Null),
            tools: parse(self.tools_json, "tools")?.filter(|tools| !tools.is_null()),
            kwargs,
            add_generation_prompt: self.add_generation_prompt,
            local_unix_s: self.has_time.then_some(self.local_unix_s),
        })
    }
}

unsafe fn parse(text: Text, what: &str) -> Result<Option<Value>> {
    let text = text.as_str(what)?;
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(text)
        .map(Some)
        .map_err(|e| TextError::invalid(format!("{what} can't be read as JSON: {e}")))
}

/// Loads and compiles the chat template of the model in `folder`.
///
/// # Safety
/// `folder` is readable; `out` is writable; `error` is writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_template_load(
    folder: Text,
    out: *mut *mut TemplateHandle,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let loaded = template::ChatTemplate::load(&folder.as_path()?)?;
        give(out, Box::into_raw(Box::new(TemplateHandle(loaded))))
    })
}

/// Frees a template.
///
/// # Safety
/// `template` is null or live, and not used again.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_template_free(template: *mut TemplateHandle) {
    drop_handle(template);
}

/// The template's text, with tools or without: some models have one for each.
///
/// # Safety
/// `template` is live, `out` writable, `error` writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_template_source(
    template: *const TemplateHandle,
    with_tools: bool,
    out: *mut Bytes,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let source = borrowed(template)?.0.source(with_tools);
        give(out, Bytes::from_vec(source.as_bytes().to_vec()))
    })
}

/// The prompt as text.
///
/// # Safety
/// `template` is live, the texts of `arguments` are readable, `out` writable, `error` too or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_template_render(
    template: *const TemplateHandle,
    arguments: *const ChatArguments,
    out: *mut Bytes,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let request = borrowed(arguments)?.to_request()?;
        let prompt = render_chat(&borrowed(template)?.0, request)?;
        give(out, Bytes::from_vec(prompt.into_bytes()))
    })
}

/// The prompt as ids, with control tokens in the caller's strings read as plain text. `OutOfRange`
/// for one that is longer than `tokens_max`.
///
/// # Safety
/// As `macrame_text_template_render`; `tokenizer` is live.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_encode_chat(
    tokenizer: *const TokenizerHandle,
    template: *const TemplateHandle,
    arguments: *const ChatArguments,
    out: *mut Ids,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let request = borrowed(arguments)?.to_request()?;
        let limit = PromptLimit::of_tokens(borrowed(arguments)?.tokens_max);
        let ids = encode_chat(&borrowed(tokenizer)?.0, &borrowed(template)?.0, request, limit)?;
        give(out, Ids::from_vec(ids))
    })
}
