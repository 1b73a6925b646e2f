//! `tojson` with the bytes of Python's `json.dumps`.

use crate::jinja::args::CallArgs;
use crate::jinja::error::{Error, Result};
use crate::jinja::print::{too_deep, PRINT_DEPTH_MAX};
use crate::jinja::value::{compare, Dict, Value};
use crate::python_text::python_float;

/// How the JSON is laid out; the defaults are those of `transformers`.
struct Layout {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The filter: `value | tojson`, with `ensure_ascii`, `indent`, `separators` and `sort_keys`.
pub fn tojson(value: &Value, args: CallArgs) -> Result<Value> {
    let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let layout = layout_of(args.bind("tojson", names, 0)?)?;
    let mut out = String::new();
    write_value(value, &layout, 0, &mut out)?;
    Ok(out.into())
}

fn layout_of([ensure_ascii, indent, separators, sort_keys]: [Option<Value>; 4]) -> Result<Layout> {
    let is_true = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(Value::Str(text)) => Some(text.to_string()),
        Some(value) => match value.as_int() {
            Some(count) => Some(" ".repeat(count.clamp(0, 256) as usize)),
            None => return Err(Error::new("tojson: indent is a number or a string")),
        },
    };
    let mut layout = Layout {
        ensure_ascii: is_true(ensure_ascii),
        item_separator: if indent.is_some() { "," } else { ", " }.into(),
        key_separator: ": ".into(),
        sort_keys: is_true(sort_keys),
        indent,
    };
    match separators {
        None | Some(Value::None) => {}
        Some(pair) => {
            let pair = pair.items()?;
            match (pair.len(), pair.first().and_then(Value::as_str), pair.get(1)) {
                (2, Some(item), Some(Value::Str(key))) => {
                    (layout.item_separator, layout.key_separator) = (item.into(), key.to_string());
                }
                _ => return Err(Error::new("tojson: separators are two strings")),
            }
        }
    }
    Ok(layout)
}

fn new_line(layout: &Layout, depth: usize, out: &mut String) {
    if let Some(indent) = &layout.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn write_value(value: &Value, layout: &Layout, depth: usize, out: &mut String) -> Result<()> {
    if depth > PRINT_DEPTH_MAX {
        return Err(too_deep());
    }
    match value {
        Value::Str(text) => write_string(text, layout.ensure_ascii, out),
        Value::List(items) | Value::Tuple(items) => write_list(items, layout, depth, out)?,
        Value::Dict(dict) => write_map(dict, layout, depth, out)?,
        other => out.push_str(&scalar(other)?),
    }
    Ok(())
}

fn scalar(value: &Value) -> Result<String> {
    Ok(match value {
        Value::None => "null".into(),
        Value::Bool(yes) => if *yes { "true" } else { "false" }.into(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => float_text(*number),
        Value::Undefined(undefined) => {
            return Err(Error::new(format!("tojson: {}", undefined.message())));
        }
        other => {
            let kind = other.type_name();
            return Err(Error::new(format!("tojson: a value of type {kind} has no JSON form")));
        }
    })
}

fn float_text(number: f64) -> String {
    match number {
        _ if number.is_nan() => "NaN".into(),
        _ if number.is_infinite() && number > 0.0 => "Infinity".into(),
        _ if number.is_infinite() => "-Infinity".into(),
        _ => python_float(number),
    }
}

fn write_list(items: &[Value], layout: &Layout, depth: usize, out: &mut String) -> Result<()> {
    out.push('[');
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(&layout.item_separator);
        }
        new_line(layout, depth + 1, out);
        write_value(item, layout, depth + 1, out)?;
    }
    if !items.is_empty() {
        new_line(layout, depth, out);
    }
    out.push(']');
    Ok(())
}

fn write_map(dict: &Dict, layout: &Layout, depth: usize, out: &mut String) -> Result<()> {
    let mut items: Vec<(&Value, &Value)> = dict.iter().map(|(key, item)| (&key.0, item)).collect();
    if layout.sort_keys {
        let mut failure = None;
        items.sort_by(|(a, _), (b, _)| match compare(a, b) {
            Ok(order) => order.unwrap_or(std::cmp::Ordering::Equal),
            Err(error) => {
                failure.get_or_insert(error);
                std::cmp::Ordering::Equal
            }
        });
        if let Some(error) = failure {
            return Err(error);
        }
    }
    out.push('{');
    for (i, (key, item)) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(&layout.item_separator);
        }
        new_line(layout, depth + 1, out);
        match key {
            Value::Str(text) => write_string(text, layout.ensure_ascii, out),
            other => {
                out.push('"');
                out.push_str(&scalar(other)?);
                out.push('"');
            }
        }
        out.push_str(&layout.key_separator);
        write_value(item, layout, depth + 1, out)?;
    }
    if !items.is_empty() {
        new_line(layout, depth, out);
    }
    out.push('}');
    Ok(())
}

fn write_string(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c if ensure_ascii && (c as u32) > 0x7e => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
