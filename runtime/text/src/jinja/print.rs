//! Values as text: `str()` and `repr()` of Python.

use super::error::{Error, Result};
use super::value::{Dict, Range, Value, ViewKind};
use crate::python_text::{python_float, write_string_repr};

/// How deep lists and maps may be nested when they are printed or turned into JSON.
pub const PRINT_DEPTH_MAX: usize = 200;

pub fn too_deep() -> Error {
    Error::new(format!("a value is nested more than {PRINT_DEPTH_MAX} levels deep"))
}

/// `str(value)`; an undefined value is empty, as Jinja has it.
pub fn to_str(value: &Value) -> Result<String> {
    let mut out = String::new();
    write_str(value, &mut out)?;
    Ok(out)
}

pub fn write_str(value: &Value, out: &mut String) -> Result<()> {
    match value {
        Value::Str(text) => out.push_str(text),
        Value::Undefined(_) => {}
        other => write_repr(other, 0, out)?,
    }
    Ok(())
}

pub fn to_repr(value: &Value) -> Result<String> {
    let mut out = String::new();
    write_repr(value, 0, &mut out)?;
    Ok(out)
}

pub fn write_repr(value: &Value, depth: usize, out: &mut String) -> Result<()> {
    if depth > PRINT_DEPTH_MAX {
        return Err(too_deep());
    }
    match value {
        Value::Undefined(_) => out.push_str("Undefined"),
        Value::None => out.push_str("None"),
        Value::Bool(yes) => out.push_str(if *yes { "True" } else { "False" }),
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Float(number) => out.push_str(&python_float(*number)),
        Value::Str(text) if text.markup => {
            out.push_str("Markup(");
            write_string_repr(text, false, out);
            out.push(')');
        }
        Value::Str(text) => write_string_repr(text, false, out),
        Value::List(items) => write_items(items, "[", "]", depth, out)?,
        Value::Tuple(items) => {
            let close = if items.len() == 1 { ",)" } else { ")" };
            write_items(items, "(", close, depth, out)?;
        }
        Value::Dict(dict) => write_dict(dict, depth, out)?,
        Value::Range(range) => write_range(range, out),
        Value::View(_, kind) => {
            out.push_str(match kind {
                ViewKind::Keys => "dict_keys(",
                ViewKind::Values => "dict_values(",
                ViewKind::Items => "dict_items(",
            });
            write_items(&value.items()?, "[", "]", depth, out)?;
            out.push(')');
        }
        Value::Namespace(names) => {
            out.push_str("<Namespace ");
            write_dict(&names.borrow(), depth, out)?;
            out.push('>');
        }
        Value::Macro(node) => match &node.node.name {
            None => out.push_str("<Macro anonymous>"),
            Some(name) => {
                out.push_str("<Macro ");
                write_string_repr(name, false, out);
                out.push('>');
            }
        },
        Value::Loop(state) => {
            let length = super::loops::length(state)?;
            out.push_str(&format!("<LoopContext {}/{length}>", state.borrow().index0 + 1));
        }
        other => {
            return Err(Error::new(format!(
                "a {} prints as its address in Python, which is different each time",
                other.type_name()
            )))
        }
    }
    Ok(())
}

fn write_items(
    items: &[Value],
    open: &str,
    close: &str,
    depth: usize,
    out: &mut String,
) -> Result<()> {
    out.push_str(open);
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        write_repr(item, depth + 1, out)?;
    }
    out.push_str(close);
    Ok(())
}

fn write_dict(dict: &Dict, depth: usize, out: &mut String) -> Result<()> {
    out.push('{');
    for (i, (key, value)) in dict.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        write_repr(&key.0, depth + 1, out)?;
        out.push_str(": ");
        write_repr(value, depth + 1, out)?;
    }
    out.push('}');
    Ok(())
}

fn write_range(range: &Range, out: &mut String) {
    let Range { start, stop, step } = range;
    out.push_str(&match step {
        1 => format!("range({start}, {stop})"),
        _ => format!("range({start}, {stop}, {step})"),
    });
}
