//! The Jinja environment of a chat template, with the habits of `transformers`.

use std::cell::RefCell;

use minijinja::value::{Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior};
use minijinja_contrib::pycompat::unknown_method_callback;

use crate::python_json::tojson;
use crate::python_text::{
    python_split_lines, python_split_spaces, python_str, python_strip, python_title,
};
use crate::strftime::strftime;

/// Instructions that one render may take. A long tool-using template spends some 200 a message.
pub const RENDER_FUEL: u64 = 1_000_000;
/// Nested macro calls, loops and includes.
const RECURSION_MAX: usize = 200;
/// The name under which the handed-in time stands in the context.
pub const LOCAL_TIME_KEY: &str = "macrame_local_unix_s";
/// The only template of an environment.
pub const TEMPLATE_NAME: &str = "chat_template";

thread_local! {
    /// What the template said to `raise_exception`. A render has its thread to itself.
    static RAISED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Takes the text of a `raise_exception` of this thread's render, if there was one.
pub fn take_raised() -> Option<String> {
    RAISED.with(|raised| raised.borrow_mut().take())
}

/// Compiles `source`.
pub fn build(source: &str) -> Result<Environment<'static>, Error> {
    let mut env = Environment::new();
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_fuel(Some(RENDER_FUEL));
    env.set_recursion_limit(RECURSION_MAX);
    env.set_formatter(|out, _state, value| {
        match value.as_str() {
            Some(text) => out.write_str(text)?,
            None => out.write_str(&python_str(value)?)?,
        }
        Ok(())
    });
    env.set_unknown_method_callback(call_method);
    env.add_filter("tojson", tojson);
    env.add_filter("length", python_len);
    env.add_filter("count", python_len);
    env.add_filter("title", |value: Value| -> Result<String, Error> {
        Ok(python_title(&python_str(&value)?))
    });
    env.add_filter("string", |value: Value| python_str(&value));
    env.add_filter("trim", |value: Value, chars: Option<String>| -> Result<String, Error> {
        Ok(python_strip(&python_str(&value)?, chars.as_deref(), true, true))
    });
    env.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
        let text = python_str(&message)?;
        RAISED.with(|raised| *raised.borrow_mut() = Some(text));
        Err(Error::new(ErrorKind::InvalidOperation, "raise_exception"))
    });
    env.add_function("strftime_now", strftime_now);
    env.add_template_owned(TEMPLATE_NAME, without_generation_tags(source))?;
    Ok(env)
}

/// Jinja's undefined has the length 0.
fn python_len(value: Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    value.len().ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("a value of type {} has no length", value.kind()),
        )
    })
}

fn strftime_now(state: &State, format: String) -> Result<String, Error> {
    match state.lookup(LOCAL_TIME_KEY).and_then(|value| i64::try_from(value).ok()) {
        Some(now) => Ok(strftime(now, &format)),
        None => Err(Error::new(
            ErrorKind::InvalidOperation,
            "the template asks for the date and the caller gave none",
        )),
    }
}

/// Methods of Python's str where they differ from the engine's own; the rest goes on to it.
fn call_method(state: &State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if value.kind() == ValueKind::String {
        let text = value.as_str().unwrap_or_default();
        let first = args.first().filter(|arg| !arg.is_none());
        let chars = first.and_then(|arg| arg.as_str());
        match name {
            "strip" => return Ok(python_strip(text, chars, true, true).into()),
            "lstrip" => return Ok(python_strip(text, chars, true, false).into()),
            "rstrip" => return Ok(python_strip(text, chars, false, true).into()),
            "split" if args.is_empty() => return Ok(Value::from(python_split_spaces(text))),
            "splitlines" if args.is_empty() => return Ok(Value::from(python_split_lines(text))),
            "title" => return Ok(python_title(text).into()),
            "rsplit" => return rsplit(text, args),
            "removeprefix" | "removesuffix" => return remove_affix(text, name, chars),
            _ => {}
        }
    }
    unknown_method_callback(state, value, name, args)
}

fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let separator = args.first().and_then(|arg| arg.as_str()).filter(|s| !s.is_empty());
    let Some(separator) = separator else {
        return Err(Error::new(ErrorKind::InvalidOperation, "rsplit needs a separator"));
    };
    let most = args.get(1).and_then(|arg| i64::try_from(arg.clone()).ok()).unwrap_or(-1);
    let pieces = if most < 0 { usize::MAX } else { most as usize + 1 };
    let mut words: Vec<Value> = text.rsplitn(pieces, separator).map(Value::from).collect();
    words.reverse();
    Ok(Value::from(words))
}

fn remove_affix(text: &str, name: &str, affix: Option<&str>) -> Result<Value, Error> {
    let affix = affix
        .ok_or_else(|| Error::new(ErrorKind::MissingArgument, format!("{name} needs a string")))?;
    let rest = match name {
        "removeprefix" => text.strip_prefix(affix),
        _ => text.strip_suffix(affix),
    };
    Ok(Value::from(rest.unwrap_or(text)))
}

/// `{% generation %}` marks the assistant's words for training and prints nothing, so it becomes
/// an `if` that is always true; dashes at its ends keep their meaning.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let Some(length) = rest[open..].find("%}") else { break };
        let inner = &rest[open + 2..open + length];
        let word = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        let replacement = match word {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => word,
        };
        out.push_str(&rest[..open + 2]);
        if replacement == word {
            out.push_str(inner);
        } else {
            out.push_str(&inner.replacen(word, &format!(" {replacement} "), 1));
        }
        out.push_str("%}");
        rest = &rest[open + length + 2..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_tags_become_conditions() {
        assert_eq!(
            without_generation_tags(
                "a{%- generation -%}b{% endgeneration %}c{% if x %}{% endif %}"
            ),
            "a{%-  if true  -%}b{%  endif  %}c{% if x %}{% endif %}"
        );
    }
}
