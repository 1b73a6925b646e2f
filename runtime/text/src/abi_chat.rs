//! The chat template's part of the C ABI.

use crate::abi::{borrowed, drop_handle, give, guard, Bytes, Ids, Status, Text};
use crate::abi_tokenizer::TokenizerHandle;
use crate::chat::{encode_chat, render_chat, RawChat};
use crate::error::Result;
use crate::template;

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
    unsafe fn raw(&self) -> Result<RawChat<'_>> {
        Ok(RawChat {
            messages: self.messages_json.as_str("messages")?,
            tools: self.tools_json.as_str("tools")?,
            kwargs: self.kwargs_json.as_str("the template's arguments")?,
            add_generation_prompt: self.add_generation_prompt,
            local_unix_s: self.has_time.then_some(self.local_unix_s),
            tokens_max: self.tokens_max,
        })
    }
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
        let request = borrowed(arguments)?.raw()?.to_request()?;
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
        let raw = borrowed(arguments)?.raw()?;
        let ids = encode_chat(&borrowed(tokenizer)?.0, &borrowed(template)?.0, &raw)?;
        give(out, Ids::from_vec(ids))
    })
}
