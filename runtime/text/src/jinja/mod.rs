//! Jinja as `transformers` sets it up, with the values of Python.
//!
//! Templates are written against Python: a tuple prints as a tuple, `~` writes `True`, integers and
//! floats keep apart, `[].append` is forbidden. An engine with other values renders other prompts,
//! and hardly any template says so. What is not supported is refused by `compile`, by name.

pub mod args;
mod ast;
pub mod error;
mod eval;
mod expression;
mod filters;
mod format;
mod functions;
mod known;
mod lexer;
mod loops;
mod methods;
mod ops;
mod parser;
pub mod print;
mod scope;
mod sequences;
mod statements;
mod str_methods;
pub mod value;

use error::Result;
use value::Value;

/// A compiled template. May be shared between threads.
pub struct Template {
    body: ast::Body,
}

/// What one render may take, and what it is told.
pub struct Limits {
    /// Expressions and statements that are run.
    pub steps: u64,
    pub output_bytes: usize,
    /// Seconds since 1970 on the wall clock of the place, for `strftime_now`.
    pub local_unix_s: Option<i64>,
}

impl Template {
    pub fn compile(source: &str) -> Result<Template> {
        Ok(Template { body: scope::resolve(parser::parse(source)?)? })
    }

    pub fn render(&self, context: &serde_json::Value, limits: Limits) -> Result<String> {
        let context = match value_of(context) {
            Value::Dict(dict) => dict,
            _ => Default::default(),
        };
        let mut interpreter = eval::Interpreter::new(&context, &limits);
        interpreter.run(&self.body)
    }
}

/// JSON as a template sees it.
pub fn value_of(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::None,
        serde_json::Value::Bool(yes) => Value::Bool(*yes),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Int(number.into()),
            (_, Some(number)) => Value::Int(number.into()),
            _ => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => Value::list(items.iter().map(value_of).collect()),
        serde_json::Value::Object(map) => {
            let items = map.iter();
            let items =
                items.map(|(key, item)| (value::Key(Value::from(key.as_str())), value_of(item)));
            Value::dict(items.collect())
        }
    }
}
