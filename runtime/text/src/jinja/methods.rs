//! Methods and properties of Python's values.

use super::args::{index, string, CallArgs};
use super::error::{Error, Result};
use super::ops::{escape, slice_bounds};
use super::str_methods;
use super::value::*;

const STR: [&str; 40] = [
    "capitalize",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
];
const MORE_STR: [&str; 2] = ["upper", "zfill"];
const DICT: [&str; 6] = ["copy", "fromkeys", "get", "items", "keys", "values"];
const LIST: [&str; 3] = ["copy", "count", "index"];
const SEQUENCE: [&str; 2] = ["count", "index"];
const INT: [&str; 4] = ["bit_count", "bit_length", "conjugate", "is_integer"];
const FLOAT: [&str; 2] = ["conjugate", "is_integer"];
const LOOP: [&str; 2] = ["changed", "cycle"];
const CYCLER: [&str; 2] = ["next", "reset"];

fn table(value: &Value) -> &'static [&'static [&'static str]] {
    match value {
        Value::Str(text) if text.markup => &[&STR, &MORE_STR, &["escape", "unescape", "striptags"]],
        Value::Str(_) => &[&STR, &MORE_STR],
        Value::Dict(_) => &[&DICT],
        Value::List(_) => &[&LIST],
        Value::Tuple(_) | Value::Range(_) => &[&SEQUENCE],
        Value::Int(_) | Value::Bool(_) => &[&INT],
        Value::Float(_) => &[&FLOAT],
        Value::View(_, ViewKind::Keys | ViewKind::Items) => &[&["isdisjoint"]],
        Value::Loop(_) => &[&LOOP],
        Value::Cycler(_) => &[&CYCLER],
        Value::Function("dict") => &[&["fromkeys"]],
        _ => &[],
    }
}

pub fn method_name(value: &Value, name: &str) -> Option<&'static str> {
    table(value).iter().flat_map(|names| names.iter()).find(|known| **known == name).copied()
}

/// Whether the sandbox hides an attribute that Python has.
pub fn is_unsafe(value: &Value, name: &str) -> bool {
    match value {
        Value::List(_) => matches!(
            name,
            "append" | "clear" | "pop" | "reverse" | "insert" | "sort" | "extend" | "remove"
        ),
        Value::Dict(_) => matches!(name, "clear" | "pop" | "popitem" | "setdefault" | "update"),
        _ => false,
    }
}

/// An attribute that is no method.
pub fn property(value: &Value, name: &str) -> Result<Option<Value>> {
    Ok(match (value, name) {
        (Value::Int(_) | Value::Bool(_), "real" | "numerator") => value.as_int().map(Value::Int),
        (Value::Int(_) | Value::Bool(_), "imag") => Some(Value::Int(0)),
        (Value::Int(_) | Value::Bool(_), "denominator") => Some(Value::Int(1)),
        (Value::Float(number), "real") => Some(Value::Float(*number)),
        (Value::Float(_), "imag") => Some(Value::Float(0.0)),
        (Value::Range(range), "start") => Some(Value::Int(range.start.into())),
        (Value::Range(range), "stop") => Some(Value::Int(range.stop.into())),
        (Value::Range(range), "step") => Some(Value::Int(range.step.into())),
        (Value::Loop(state), name) => super::loops::attribute(state, name)?,
        (Value::Cycler(cycler), "current") => cycler.0.get(*cycler.1.borrow()).cloned(),
        (Value::Cycler(cycler), "pos") => Some(Value::int(*cycler.1.borrow())),
        (Value::Cycler(cycler), "items") => Some(Value::tuple(cycler.0.clone())),
        (Value::Joiner(joiner), "sep") => Some(joiner.0.clone()),
        (Value::Joiner(joiner), "used") => Some(Value::Bool(*joiner.1.borrow())),
        (Value::Macro(node), "name") => Some(match &node.node.name {
            Some(name) => Value::from(name.clone()),
            None => Value::None,
        }),
        (Value::Macro(node), "arguments") => {
            let names = node.node.args.iter().map(|name| Value::from(name.clone()));
            Some(Value::tuple(names.collect()))
        }
        (Value::Macro(node), "catch_kwargs") => Some(node.node.uses_kwargs.into()),
        (Value::Macro(node), "catch_varargs") => Some(node.node.uses_varargs.into()),
        (Value::Macro(node), "caller") => Some(node.node.uses_caller.into()),
        _ => None,
    })
}

/// `self.name(…)` for everything that needs nothing of the interpreter.
pub fn call(object: &Value, name: &'static str, args: CallArgs) -> Result<Value> {
    match object {
        Value::Str(text) => str_methods::call(text, name, args),
        Value::Dict(dict) => dict_method(dict, name, args),
        Value::Function("dict") => fromkeys(args),
        Value::List(items) if name == "copy" => {
            args.none("copy")?;
            Ok(Value::list(items.as_ref().clone()))
        }
        Value::List(_) | Value::Tuple(_) | Value::Range(_) => sequence_method(object, name, args),
        Value::Int(_) | Value::Bool(_) => {
            args.none(name)?;
            let number = object.as_int().unwrap_or(0);
            let magnitude = number.unsigned_abs();
            Ok(match name {
                "bit_count" => Value::Int(magnitude.count_ones().into()),
                "bit_length" => Value::Int((128 - magnitude.leading_zeros()).into()),
                "is_integer" => Value::Bool(true),
                _ => Value::Int(number),
            })
        }
        Value::Float(number) => {
            args.none(name)?;
            Ok(match name {
                "is_integer" => Value::Bool(number.is_finite() && number.fract() == 0.0),
                _ => Value::Float(*number),
            })
        }
        Value::View(..) => {
            let [other] = args.unnamed(name, 1)?;
            let mine = object.items()?;
            let theirs = other.unwrap_or(Value::None).items()?;
            Ok(Value::Bool(!theirs.iter().any(|item| mine.iter().any(|one| equal(one, item)))))
        }
        Value::Loop(state) => super::loops::method(state, name, args),
        Value::Cycler(cycler) => {
            args.none(name)?;
            let mut at = cycler.1.borrow_mut();
            if name == "reset" {
                *at = 0;
                return Ok(Value::None);
            }
            let item = cycler.0[*at].clone();
            *at = (*at + 1) % cycler.0.len();
            Ok(item)
        }
        other => Err(Error::new(format!("a {} has no method {name:?}", other.type_name()))),
    }
}

fn fromkeys(args: CallArgs) -> Result<Value> {
    let [keys, value] = args.unnamed("fromkeys", 1)?;
    let value = value.unwrap_or(Value::None);
    let mut dict = Dict::new();
    for key in keys.unwrap_or(Value::None).items()? {
        dict.insert(key.into_key()?, value.clone());
    }
    Ok(Value::dict(dict))
}

fn dict_method(dict: &std::rc::Rc<Dict>, name: &str, args: CallArgs) -> Result<Value> {
    match name {
        "get" => {
            let [key, default] = args.unnamed("get", 1)?;
            let key = key.unwrap_or(Value::None).into_key()?;
            Ok(dict.get(&key).cloned().unwrap_or(default.unwrap_or(Value::None)))
        }
        "fromkeys" => fromkeys(args),
        _ => {
            args.none(name)?;
            Ok(match name {
                "copy" => Value::dict(dict.as_ref().clone()),
                "items" => Value::View(dict.clone(), ViewKind::Items),
                "keys" => Value::View(dict.clone(), ViewKind::Keys),
                _ => Value::View(dict.clone(), ViewKind::Values),
            })
        }
    }
}

fn sequence_method(object: &Value, name: &str, args: CallArgs) -> Result<Value> {
    let items = object.items()?;
    if name == "count" {
        let [wanted] = args.unnamed(name, 1)?;
        let wanted = wanted.unwrap_or(Value::None);
        let is_it = |item: &&Value| same(item, &wanted) || equal(item, &wanted);
        return Ok(Value::int(items.iter().filter(is_it).count()));
    }
    let [wanted, start, stop] = args.unnamed(name, 1)?;
    let wanted = wanted.unwrap_or(Value::None);
    let start = start.as_ref().map(index).transpose()?;
    let stop = stop.as_ref().map(index).transpose()?;
    let (start, stop, _) = slice_bounds(start, stop, None, items.len())?;
    (start..stop)
        .find(|at| same(&items[*at as usize], &wanted) || equal(&items[*at as usize], &wanted))
        .map(Value::Int)
        .ok_or_else(|| Error::new("the value is not in the list"))
}

/// Text to be put into `into`, which may be markup.
pub fn fit(into: bool, value: &Value, what: &str) -> Result<String> {
    let text = string(value, what)?;
    let is_safe = matches!(value, Value::Str(text) if text.markup);
    Ok(if into && !is_safe { escape(text) } else { text.to_string() })
}
