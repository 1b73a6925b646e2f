//! From messages to ids, so that no message can speak in the template's voice.
//!
//! A prompt is one string to the tokenizer, which can't tell the template's `<|im_start|>` from
//! one that a person typed. So control tokens in the caller's strings are broken by markers (see
//! `markers`) before the template runs, and the markers are taken out between the search for
//! added tokens and the encoding proper. Without such tokens in the request nothing is marked and
//! the ids are those of the rendered string, merges across borders and all.

use serde_json::Value;

use crate::error::{Result, TextError};
use crate::markers::{choose_marker, Breaker};
use crate::template::{ChatRequest, ChatTemplate};
use crate::tokenizer::Tokenizer;

/// The prompt as text.
pub fn render_chat(template: &ChatTemplate, request: ChatRequest) -> Result<String> {
    Ok(template.render_all(vec![request])?.remove(0))
}

/// The prompt as ids. A control token's text in messages, tools or arguments becomes plain text.
///
/// In the assistant's messages only special tokens are broken: other added tokens that a template
/// writes, such as `<think>`, are the model's own words there.
pub fn encode_chat(
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    request: ChatRequest,
) -> Result<Vec<u32>> {
    let breaker = tokenizer.breaker_for(template.source(request.tools.is_some()))?;
    let own_words = tokenizer.special_breaker();
    if !concerns(&request, &breaker, &own_words) {
        let prompt = render_chat(template, request)?;
        return tokenizer.encode_prompt(&prompt, None);
    }
    let marker = marker_for(&request, template)?;
    let marked = mark_request(request.clone(), &breaker, &own_words, marker)?;
    let rendered = template.render_all(vec![request, marked])?;
    let (plain, marked) = (&rendered[0], &rendered[1]);
    if marked.replace(marker, "") != *plain && mentions(marked, marker) {
        return Err(TextError::invalid(
            "a message holds the text of a control token and this model's template rewrites it \
             letter by letter; take that text out of the messages or tools",
        ));
    }
    tokenizer.encode_prompt(marked, Some(marker))
}

fn is_assistant(message: &Value) -> bool {
    message.get("role").and_then(Value::as_str) == Some("assistant")
}

fn concerns(request: &ChatRequest, breaker: &Breaker, own_words: &Breaker) -> bool {
    let messages = request.messages.as_array().map_or(&[][..], Vec::as_slice);
    messages.iter().any(|message| match is_assistant(message) {
        true => own_words.concerns(message),
        false => breaker.concerns(message),
    }) || request.tools.as_ref().is_some_and(|tools| breaker.concerns(tools))
        || request.kwargs.values().any(|value| breaker.concerns(value))
}

fn mark_request(
    mut request: ChatRequest,
    breaker: &Breaker,
    own_words: &Breaker,
    marker: char,
) -> Result<ChatRequest> {
    if let Value::Array(messages) = &mut request.messages {
        for message in messages {
            let by = if is_assistant(message) { own_words } else { breaker };
            by.mark(message, marker, 0)?;
        }
    }
    if let Some(tools) = &mut request.tools {
        breaker.mark(tools, marker, 0)?;
    }
    for (_, value) in &mut request.kwargs {
        breaker.mark(value, marker, 0)?;
    }
    Ok(request)
}

fn marker_for(request: &ChatRequest, template: &ChatTemplate) -> Result<char> {
    let messages = request.messages.to_string();
    let tools = request.tools.as_ref().map(Value::to_string).unwrap_or_default();
    let kwargs = Value::Object(request.kwargs.clone()).to_string();
    let source = template.source(request.tools.is_some());
    choose_marker(&[&messages, &tools, &kwargs, source])
}

/// Whether the marker was turned into an escape, which couldn't be taken out again.
fn mentions(prompt: &str, marker: char) -> bool {
    let mut units = [0; 2];
    let escaped: String =
        marker.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect();
    prompt.to_lowercase().contains(&escaped)
}
