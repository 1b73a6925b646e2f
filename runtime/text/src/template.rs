//! A model's chat template: found, compiled and rendered under bounds.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value as Json};

use crate::bounded::{self, Overrun};
use crate::error::{Code, Result, TextError};
use crate::files::{read_json_object, read_text_if_there, TEMPLATE_MAX_BYTES};
use crate::jinja::error::{Error, Kind};
use crate::jinja::{Limits, Template};
use crate::special_tokens::SpecialTokens;

/// The longest prompt that a render may give.
pub const RENDER_OUTPUT_MAX_BYTES: usize = 32 << 20;
/// Memory of a render, beside eight times the size of its input.
const RENDER_MEMORY_BYTES: usize = 96 << 20;
/// Steps of a render, and for each byte of its input: a long session of calls goes through them
/// several times. The time limit bounds what is left.
const RENDER_STEPS: u64 = 20_000_000;
const RENDER_STEPS_PER_BYTE: u64 = 500;
/// Wall-clock limit of a render; a real one takes well under a millisecond.
const RENDER_LIMIT: Duration = Duration::from_secs(5);
/// Beyond, a slow render is the messages' doing.
const LARGE_INPUT_BYTES: usize = 64 << 10;

/// What a caller asks a template to render.
#[derive(Clone, Debug, Default)]
pub struct ChatRequest {
    /// An array of message objects; at least one.
    pub messages: Json,
    /// An array of tool descriptions, or `None` for no tools.
    pub tools: Option<Json>,
    /// More variables for the template, such as `enable_thinking`.
    pub kwargs: Map<String, Json>,
    /// Whether the prompt ends with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Seconds since 1970 on the wall clock of the place, for `strftime_now`.
    pub local_unix_s: Option<i64>,
}

/// A compiled template with the model's named tokens. May be shared between threads.
pub struct ChatTemplate {
    shared: Arc<Shared>,
}

struct Shared {
    default: Compiled,
    tool_use: Option<Compiled>,
    named_tokens: Vec<(String, String)>,
    /// A run of this template broke its bounds: the next ones are a worker's.
    has_overrun: AtomicBool,
    origin: String,
}

struct Compiled {
    template: Template,
    source: String,
}

impl ChatTemplate {
    /// Looks for chat_template.jinja, then tokenizer_config.json, then chat_template.json.
    pub fn load(folder: &Path) -> Result<ChatTemplate> {
        let (origin, default, tool_use) = find_sources(folder)?;
        let named_tokens = SpecialTokens::load(folder)?.named;
        ChatTemplate::compile(origin, default, tool_use, named_tokens)
    }

    fn compile(
        origin: String,
        default: String,
        tool_use: Option<String>,
        named_tokens: Vec<(String, String)>,
    ) -> Result<ChatTemplate> {
        // Compiling folds constant expressions, which others wrote: it is bounded like a run.
        let name = origin.clone();
        let built = bounded::run("chat template", RENDER_MEMORY_BYTES, RENDER_LIMIT, move || {
            let default = compile_one(&name, default)?;
            let tool_use = tool_use.map(|source| compile_one(&name, source)).transpose()?;
            Ok((default, tool_use))
        });
        let (default, tool_use) = built.unwrap_or_else(|over| Err(overrun(&origin, over)))?;
        let has_overrun = AtomicBool::new(false);
        let shared = Shared { default, tool_use, named_tokens, has_overrun, origin };
        Ok(ChatTemplate { shared: Arc::new(shared) })
    }

    /// The template's text, for looking up which tokens it writes.
    pub fn source(&self, with_tools: bool) -> &str {
        &self.shared.pick(with_tools).source
    }

    /// Whether a run of it broke its bounds.
    pub fn has_overrun(&self) -> bool {
        self.shared.has_overrun.load(Ordering::Relaxed)
    }

    /// Renders each request; all with the same template, in one bounded run.
    pub fn render_all(&self, requests: Vec<ChatRequest>) -> Result<Vec<String>> {
        let input_bytes: usize = requests.iter().map(size_of_request).sum();
        let budget = RENDER_MEMORY_BYTES + 8 * input_bytes;
        let shared = self.shared.clone();
        let outcome = bounded::run("chat template", budget, RENDER_LIMIT, move || {
            requests.into_iter().map(|request| shared.render(request)).collect()
        });
        outcome.unwrap_or_else(|over| {
            if over == Overrun::Time && input_bytes > LARGE_INPUT_BYTES {
                return Err(TextError::invalid(format!(
                    "the {input_bytes} bytes of these messages take this model's chat template \
                     longer than {} s; send less at once",
                    RENDER_LIMIT.as_secs()
                )));
            }
            self.shared.has_overrun.store(true, Ordering::Relaxed);
            Err(overrun(&self.shared.origin, over))
        })
    }
}

impl Shared {
    fn pick(&self, with_tools: bool) -> &Compiled {
        match &self.tool_use {
            Some(tool_use) if with_tools => tool_use,
            _ => &self.default,
        }
    }

    fn render(&self, request: ChatRequest) -> Result<String> {
        let compiled = self.pick(request.tools.is_some());
        let local_unix_s = request.local_unix_s;
        let steps = RENDER_STEPS + RENDER_STEPS_PER_BYTE * size_of_request(&request) as u64;
        let context = self.context(request)?;
        let limits = Limits { steps, output_bytes: RENDER_OUTPUT_MAX_BYTES, local_unix_s };
        compiled.template.render(&context, limits).map_err(|e| render_error(&self.origin, e))
    }

    /// The variables that `transformers` hands to a template.
    fn context(&self, request: ChatRequest) -> Result<Json> {
        let mut context = Map::new();
        for (name, text) in &self.named_tokens {
            context.insert(name.clone(), Json::String(text.clone()));
        }
        context.extend(request.kwargs);
        context.insert("messages".into(), checked_messages(request.messages)?);
        context.insert("tools".into(), checked_tools(request.tools)?);
        context.entry("documents").or_insert(Json::Null);
        context.insert("add_generation_prompt".into(), request.add_generation_prompt.into());
        Ok(Json::Object(context))
    }
}

/// A conversation as templates see it: no nulls, and reasoning under each name in use.
fn checked_messages(messages: Json) -> Result<Json> {
    let Json::Array(list) = messages else {
        return Err(TextError::invalid("messages must be a JSON array"));
    };
    if list.is_empty() {
        return Err(TextError::invalid("messages must hold at least one message"));
    }
    let mut out = Vec::with_capacity(list.len());
    for message in list {
        let Json::Object(message) = message else {
            return Err(TextError::invalid("each message must be a JSON object"));
        };
        out.push(Json::Object(with_reasoning_names(message)));
    }
    Ok(Json::Array(out))
}

/// `{"thinking": …, **message, "reasoning_content": …}`, as `transformers` does it.
fn with_reasoning_names(message: Map<String, Json>) -> Map<String, Json> {
    let mut message: Map<String, Json> =
        message.into_iter().filter(|(_, value)| !value.is_null()).collect();
    let names = ["reasoning_content", "thinking", "reasoning"];
    let mut known = names.iter().filter_map(|name| message.get(*name));
    let Some(reasoning) = known.find(|value| !value.is_null()).cloned() else {
        return message;
    };
    let thinking = message.shift_remove("thinking").unwrap_or_else(|| reasoning.clone());
    message.shift_insert(0, "thinking".into(), thinking);
    message.insert("reasoning_content".into(), reasoning);
    message
}

fn checked_tools(tools: Option<Json>) -> Result<Json> {
    match tools {
        None => Ok(Json::Null),
        Some(Json::Array(list)) if list.iter().all(Json::is_object) => Ok(Json::Array(list)),
        Some(_) => Err(TextError::invalid("tools must be a JSON array of objects")),
    }
}

/// What a request weighs, roughly: every string and a little for each value.
fn size_of_request(request: &ChatRequest) -> usize {
    fn weigh(value: &Json) -> usize {
        64 + match value {
            Json::String(text) => text.len(),
            Json::Array(list) => list.iter().map(weigh).sum(),
            Json::Object(map) => map.iter().map(|(key, item)| key.len() + weigh(item)).sum(),
            _ => 0,
        }
    }
    let tools = request.tools.as_ref().map_or(0, weigh);
    weigh(&request.messages) + tools + request.kwargs.values().map(weigh).sum::<usize>()
}

fn compile_one(origin: &str, source: String) -> Result<Compiled> {
    if source.len() as u64 > TEMPLATE_MAX_BYTES {
        return Err(TextError::exhausted(format!(
            "{origin}: the chat template has {} bytes, more than {TEMPLATE_MAX_BYTES}",
            source.len()
        )));
    }
    let template = Template::compile(&source).map_err(|e| {
        TextError::data_loss(format!("{origin}: the chat template can't be compiled: {e}"))
    })?;
    Ok(Compiled { template, source })
}

fn overrun(origin: &str, over: Overrun) -> TextError {
    let what = match over {
        Overrun::Memory => "took more memory than a prompt can need".to_string(),
        Overrun::Time => format!("ran for more than {} s", RENDER_LIMIT.as_secs()),
    };
    // Not a bound that time lifts: asking again gives the same.
    TextError::invalid(format!("{origin}: the chat template {what}"))
}

fn render_error(origin: &str, error: Error) -> TextError {
    match error.kind {
        Kind::Raised => TextError::new(Code::Aborted, error.message),
        Kind::Output => TextError::invalid(format!(
            "{origin}: the chat template writes more than {RENDER_OUTPUT_MAX_BYTES} bytes for these \
             messages; send less at once"
        )),
        Kind::Memory => overrun(origin, Overrun::Memory),
        Kind::Steps => TextError::invalid(format!(
            "{origin}: the chat template takes too many steps for these messages; send less at once"
        )),
        _ => TextError::invalid(format!(
            "{origin}: the chat template can't render these messages: {error}"
        )),
    }
}

type Sources = (String, String, Option<String>);

fn find_sources(folder: &Path) -> Result<Sources> {
    let jinja = folder.join("chat_template.jinja");
    if let Some(source) = read_text_if_there(&jinja, TEMPLATE_MAX_BYTES)? {
        let more = folder.join("additional_chat_templates/tool_use.jinja");
        let tool_use = read_text_if_there(&more, TEMPLATE_MAX_BYTES)?;
        return Ok((jinja.display().to_string(), source, tool_use));
    }
    for name in ["tokenizer_config.json", "chat_template.json"] {
        let path = folder.join(name);
        let origin = path.display().to_string();
        match read_json_object(&path)?.get("chat_template") {
            None | Some(Json::Null) => {}
            Some(Json::String(source)) => return Ok((origin, source.clone(), None)),
            Some(Json::Array(list)) => return from_list(origin, list),
            Some(_) => {
                return Err(TextError::data_loss(format!(
                    "{origin}: chat_template is neither a string nor a list of named templates"
                )))
            }
        }
    }
    Err(TextError::new(
        Code::NotFound,
        format!(
            "{} has no chat template; use the completions endpoint or add chat_template.jinja",
            folder.display()
        ),
    ))
}

fn from_list(origin: String, list: &[Json]) -> Result<Sources> {
    let named = |name: &str| {
        list.iter()
            .find(|entry| entry.get("name").and_then(Json::as_str) == Some(name))
            .and_then(|entry| entry.get("template").and_then(Json::as_str))
            .map(str::to_string)
    };
    match named("default") {
        Some(default) => Ok((origin, default, named("tool_use"))),
        None => Err(TextError::data_loss(format!(
            "{origin}: the list of chat templates has none named \"default\""
        ))),
    }
}
