//! From messages to ids, so that no message can speak in the template's voice.
//!
//! A prompt is one string to the tokenizer, which can't tell the template's `<|im_start|>` from
//! one that a person typed. So control tokens in the caller's strings are hidden by markers (see
//! `markers`) before the template runs, and shown again between the search for added tokens and
//! the encoding proper. Without such tokens in the request nothing is marked and
//! the ids are those of the rendered string, merges across borders and all.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::error::{Result, TextError};
use crate::markers::{Breaker, Markers};
use crate::prompt_limit::{ask_for_ids, encode_prompt_bounded, PromptLimit};
use crate::template::{ChatRequest, ChatTemplate};
use crate::tokenizer::Tokenizer;
use crate::wire::{Reader, Writer};
use crate::worker::ENCODE_CHAT;

/// The prompt as text.
pub fn render_chat(template: &ChatTemplate, request: ChatRequest) -> Result<String> {
    Ok(template.render_all(vec![request])?.remove(0))
}

/// The longest messages, tools and arguments together, as JSON.
pub const CHAT_JSON_MAX_BYTES: usize = 32 << 20;
/// The template's own arguments are switches; what is longer is a mistake, or worse.
pub const KWARGS_JSON_MAX_BYTES: usize = 64 << 10;
/// Of what has more values a worker makes the prompt: they take many times their bytes.
const VALUES_MAX: usize = 100_000;
/// Of a worker that renders the messages, twice where something is hidden, and makes ids of them.
const CHAT_LIMIT: Duration = Duration::from_secs(15);

/// A request as JSON texts. Empty `tools` means no tools, empty `kwargs` no more variables.
pub struct RawChat<'a> {
    pub messages: &'a str,
    pub tools: &'a str,
    pub kwargs: &'a str,
    pub add_generation_prompt: bool,
    pub local_unix_s: Option<i64>,
    /// The longest prompt in tokens; 0: any.
    pub tokens_max: usize,
}

impl<'a> RawChat<'a> {
    fn bytes(&self) -> usize {
        self.messages.len() + self.tools.len() + self.kwargs.len()
    }

    /// No fewer than there are: commas and the like in texts count, too.
    fn values_at_most(&self) -> usize {
        let begins = |byte: &&u8| matches!(**byte, b'[' | b'{' | b',' | b':');
        let count = |text: &str| text.as_bytes().iter().filter(begins).count();
        count(self.messages) + count(self.tools) + count(self.kwargs)
    }

    pub fn to_request(&self) -> Result<ChatRequest> {
        let total = self.bytes();
        if total > CHAT_JSON_MAX_BYTES {
            return Err(TextError::invalid(format!(
                "the messages have {total} bytes, more than {CHAT_JSON_MAX_BYTES}"
            )));
        }
        if self.kwargs.len() > KWARGS_JSON_MAX_BYTES {
            return Err(TextError::invalid(format!(
                "the template's arguments (chat_template_kwargs) have {} bytes, more than \
                 {KWARGS_JSON_MAX_BYTES}; send what is long as a message",
                self.kwargs.len()
            )));
        }
        let kwargs = match parse(self.kwargs, "the template's arguments")? {
            None => Map::new(),
            Some(Value::Object(map)) => map,
            Some(_) => {
                return Err(TextError::invalid("the template's arguments must be a JSON object"))
            }
        };
        Ok(ChatRequest {
            messages: parse(self.messages, "messages")?.unwrap_or(Value::Null),
            tools: parse(self.tools, "tools")?.filter(|tools| !tools.is_null()),
            kwargs,
            add_generation_prompt: self.add_generation_prompt,
            local_unix_s: self.local_unix_s,
        })
    }

    fn to_wire(&self) -> Vec<u8> {
        Writer::default()
            .number(ENCODE_CHAT)
            .bytes(self.messages.as_bytes())
            .bytes(self.tools.as_bytes())
            .bytes(self.kwargs.as_bytes())
            .number(self.add_generation_prompt.into())
            .number(self.local_unix_s.is_some().into())
            .number(self.local_unix_s.unwrap_or(0) as u64)
            .number(self.tokens_max as u64)
            .end()
    }

    pub fn from_wire(reader: &mut Reader<'a>) -> Result<RawChat<'a>> {
        let (messages, tools, kwargs) = (reader.text()?, reader.text()?, reader.text()?);
        let add_generation_prompt = reader.flag()?;
        let (has_time, time) = (reader.flag()?, reader.number()? as i64);
        let local_unix_s = has_time.then_some(time);
        let tokens_max = reader.number()? as usize;
        Ok(RawChat { messages, tools, kwargs, add_generation_prompt, local_unix_s, tokens_max })
    }
}

fn parse(text: &str, what: &str) -> Result<Option<Value>> {
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(text)
        .map(Some)
        .map_err(|e| TextError::invalid(format!("{what} can't be read as JSON: {e}")))
}

/// The prompt as ids. A control token's text in messages, tools or arguments becomes plain text.
///
/// `OutOfRange` for a prompt that is longer than `raw.tokens_max`; `prompt_limit` says what else
/// bounds it. In the assistant's messages only special tokens are hidden: other added tokens that a
/// template writes, such as `<think>`, are the model's own text there.
pub fn encode_chat(
    tokenizer: &Arc<Tokenizer>,
    template: &ChatTemplate,
    raw: &RawChat,
) -> Result<Vec<u32>> {
    if let Some(workers) = tokenizer.workers().filter(|workers| workers.is_usable()) {
        if template.has_overrun() || raw.values_at_most() > VALUES_MAX {
            return ask_for_ids(workers, &raw.to_wire(), raw.bytes(), CHAT_LIMIT);
        }
    }
    let limit = PromptLimit::of_tokens(raw.tokens_max);
    let (prompt, markers) = prompt_of(tokenizer, template, raw.to_request()?)?;
    encode_prompt_bounded(tokenizer, prompt, markers, limit)
}

/// The prompt as text, and what is hidden in it.
fn prompt_of(
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    request: ChatRequest,
) -> Result<(String, Option<Markers>)> {
    let breaker = tokenizer.breaker_for(template.source(request.tools.is_some()))?;
    let own_words = tokenizer.special_breaker();
    let hidden = characters_to_hide(&request, &breaker, &own_words);
    if hidden.is_empty() {
        return Ok((render_chat(template, request)?, None));
    }
    let markers = markers_for(&hidden, &request, template)?;
    let marked = mark_request(request.clone(), &breaker, &own_words, &markers)?;
    let only_parts = !holds_whole_token(&request, &breaker, &own_words);
    let mut rendered = template.render_all(vec![request, marked])?;
    let marked = rendered.remove(1);
    let plain = rendered.remove(0);
    let unmarked: String = marked.chars().map(|c| markers.show(c)).collect();
    if unmarked == plain {
        return Ok((marked, Some(markers)));
    }
    // The template acts on a character that was hidden.
    if only_parts && breaker.count(&plain) == breaker.count(&marked) {
        // It is part of no token after all: the prompt is what it would be without markers.
        return Ok((plain, None));
    }
    if markers.are_escaped_in(&marked) {
        return Err(TextError::invalid(
            "a message holds the text of a control token and this model's template rewrites it \
             letter by letter; take that text out of the messages or tools",
        ));
    }
    // A caller's control token must not steer the template either: what it renders without seeing
    // one is taken.
    Ok((marked, Some(markers)))
}

fn holds_whole_token(request: &ChatRequest, breaker: &Breaker, own_words: &Breaker) -> bool {
    let messages = request.messages.as_array().map_or(&[][..], Vec::as_slice);
    messages.iter().any(|message| match is_assistant(message) {
        true => own_words.finds_in(message),
        false => breaker.finds_in(message),
    }) || request.tools.as_ref().is_some_and(|tools| breaker.finds_in(tools))
        || request.kwargs.values().any(|value| breaker.finds_in(value))
}

fn is_assistant(message: &Value) -> bool {
    message.get("role").and_then(Value::as_str) == Some("assistant")
}

fn characters_to_hide(
    request: &ChatRequest,
    breaker: &Breaker,
    own_words: &Breaker,
) -> BTreeSet<char> {
    let mut found = BTreeSet::new();
    for message in request.messages.as_array().map_or(&[][..], Vec::as_slice) {
        let by = if is_assistant(message) { own_words } else { breaker };
        by.collect(message, &mut found);
    }
    request.tools.iter().for_each(|tools| breaker.collect(tools, &mut found));
    request.kwargs.values().for_each(|value| breaker.collect(value, &mut found));
    found
}

fn mark_request(
    mut request: ChatRequest,
    breaker: &Breaker,
    own_words: &Breaker,
    markers: &Markers,
) -> Result<ChatRequest> {
    if let Value::Array(messages) = &mut request.messages {
        for message in messages {
            let by = if is_assistant(message) { own_words } else { breaker };
            by.mark(message, markers, 0)?;
        }
    }
    if let Some(tools) = &mut request.tools {
        breaker.mark(tools, markers, 0)?;
    }
    for (_, value) in &mut request.kwargs {
        breaker.mark(value, markers, 0)?;
    }
    Ok(request)
}

fn markers_for(
    hidden: &BTreeSet<char>,
    request: &ChatRequest,
    template: &ChatTemplate,
) -> Result<Markers> {
    let messages = request.messages.to_string();
    let tools = request.tools.as_ref().map(Value::to_string).unwrap_or_default();
    let kwargs = Value::Object(request.kwargs.clone()).to_string();
    let source = template.source(request.tools.is_some());
    Markers::choose(hidden, &[&messages, &tools, &kwargs, source])
}
