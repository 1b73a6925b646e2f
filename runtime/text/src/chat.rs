//! From messages to ids, so that no message can speak in the template's voice.
//!
//! A prompt is one string to the tokenizer, which can't tell the template's `<|im_start|>` from
//! one that a person typed. So control tokens in the caller's strings are hidden by markers (see
//! `markers`) before the template runs, and shown again between the search for added tokens and
//! the encoding proper. Without such tokens in the request nothing is marked and
//! the ids are those of the rendered string, merges across borders and all.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::error::{Result, TextError};
use crate::markers::{Breaker, Markers};
use crate::prompt_limit::{encode_prompt_bounded, PromptLimit};
use crate::template::{ChatRequest, ChatTemplate};
use crate::tokenizer::Tokenizer;

/// The prompt as text.
pub fn render_chat(template: &ChatTemplate, request: ChatRequest) -> Result<String> {
    Ok(template.render_all(vec![request])?.remove(0))
}

/// The prompt as ids. A control token's text in messages, tools or arguments becomes plain text.
///
/// `OutOfRange` for a prompt that is longer than `limit`; `prompt_limit` says what else bounds it.
/// In the assistant's messages only special tokens are hidden: other added tokens that a template
/// writes, such as `<think>`, are the model's own text there.
pub fn encode_chat(
    tokenizer: &Arc<Tokenizer>,
    template: &ChatTemplate,
    request: ChatRequest,
    limit: PromptLimit,
) -> Result<Vec<u32>> {
    let breaker = tokenizer.breaker_for(template.source(request.tools.is_some()))?;
    let own_words = tokenizer.special_breaker();
    let hidden = characters_to_hide(&request, &breaker, &own_words);
    if hidden.is_empty() {
        let prompt = render_chat(template, request)?;
        return encode_prompt_bounded(tokenizer, prompt, None, limit);
    }
    let markers = markers_for(&hidden, &request, template)?;
    let marked = mark_request(request.clone(), &breaker, &own_words, &markers)?;
    let only_parts = !holds_whole_token(&request, &breaker, &own_words);
    let mut rendered = template.render_all(vec![request, marked])?;
    let marked = rendered.remove(1);
    let plain = rendered.remove(0);
    let unmarked: String = marked.chars().map(|c| markers.show(c)).collect();
    if unmarked == plain {
        return encode_prompt_bounded(tokenizer, marked, Some(markers), limit);
    }
    // The template acts on a character that was hidden.
    if only_parts && breaker.count(&plain) == breaker.count(&marked) {
        // It is part of no token after all: the prompt is what it would be without markers.
        return encode_prompt_bounded(tokenizer, plain, None, limit);
    }
    if markers.are_escaped_in(&marked) {
        return Err(TextError::invalid(
            "a message holds the text of a control token and this model's template rewrites it \
             letter by letter; take that text out of the messages or tools",
        ));
    }
    // A caller's control token must not steer the template either: what it renders without seeing
    // one is taken.
    encode_prompt_bounded(tokenizer, marked, Some(markers), limit)
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
