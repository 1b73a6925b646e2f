//! `tojson` with the bytes of Python's `json.dumps`.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

use crate::python_text::{python_float, too_deep, PRINT_DEPTH_MAX};

/// How the JSON is laid out; the defaults are those of `transformers`.
struct Layout {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The filter: `value | tojson`, with `ensure_ascii`, `indent`, `separators` and `sort_keys`.
pub fn tojson(value: Value, kwargs: Kwargs) -> Result<String, Error> {
    let layout = layout_of(&kwargs)?;
    kwargs.assert_all_used()?;
    let mut out = String::new();
    write_value(&value, &layout, 0, &mut out)?;
    Ok(out)
}

fn layout_of(kwargs: &Kwargs) -> Result<Layout, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")? {
        None => None,
        Some(value) if value.is_none() => None,
        Some(value) => Some(match value.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(value.as_usize().unwrap_or(0).min(16)),
        }),
    };
    let mut layout = Layout {
        ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        item_separator: if indent.is_some() { "," } else { ", " }.into(),
        key_separator: ": ".into(),
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent,
    };
    if let Some(pair) = kwargs.get::<Option<Value>>("separators")? {
        if !pair.is_none() {
            layout.item_separator = text_at(&pair, 0)?;
            layout.key_separator = text_at(&pair, 1)?;
        }
    }
    Ok(layout)
}

fn text_at(pair: &Value, index: usize) -> Result<String, Error> {
    let item = pair.get_item_by_index(index)?;
    item.as_str().map(str::to_string).ok_or_else(|| {
        Error::new(ErrorKind::InvalidOperation, "tojson: separators are two strings")
    })
}

fn new_line(layout: &Layout, depth: usize, out: &mut String) {
    if let Some(indent) = &layout.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn write_value(
    value: &Value,
    layout: &Layout,
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    if depth > PRINT_DEPTH_MAX {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => write_number(value, out),
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), layout, out),
        ValueKind::Seq | ValueKind::Iterable => write_list(value, layout, depth, out)?,
        ValueKind::Map => write_map(value, layout, depth, out)?,
        kind => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("tojson: a value of type {kind} has no JSON form"),
            ))
        }
    }
    Ok(())
}

fn write_number(value: &Value, out: &mut String) {
    if value.is_integer() {
        out.push_str(&value.to_string());
        return;
    }
    match f64::try_from(value.clone()) {
        Ok(number) if number.is_nan() => out.push_str("NaN"),
        Ok(number) if number.is_infinite() => {
            out.push_str(if number > 0.0 { "Infinity" } else { "-Infinity" });
        }
        Ok(number) => out.push_str(&python_float(number)),
        Err(_) => out.push_str(&value.to_string()),
    }
}

fn write_list(value: &Value, layout: &Layout, depth: usize, out: &mut String) -> Result<(), Error> {
    out.push('[');
    let mut empty = true;
    for item in value.try_iter()? {
        if !empty {
            out.push_str(&layout.item_separator);
        }
        empty = false;
        new_line(layout, depth + 1, out);
        write_value(&item, layout, depth + 1, out)?;
    }
    if !empty {
        new_line(layout, depth, out);
    }
    out.push(']');
    Ok(())
}

fn write_map(value: &Value, layout: &Layout, depth: usize, out: &mut String) -> Result<(), Error> {
    let mut keys: Vec<Value> = value.try_iter()?.collect();
    if layout.sort_keys {
        keys.sort();
    }
    out.push('{');
    for (i, key) in keys.iter().enumerate() {
        if i > 0 {
            out.push_str(&layout.item_separator);
        }
        new_line(layout, depth + 1, out);
        match key.as_str() {
            Some(text) => write_string(text, layout, out),
            None => {
                out.push('"');
                write_value(key, layout, depth + 1, out)?;
                out.push('"');
            }
        }
        out.push_str(&layout.key_separator);
        write_value(&value.get_item(key)?, layout, depth + 1, out)?;
    }
    if !keys.is_empty() {
        new_line(layout, depth, out);
    }
    out.push('}');
    Ok(())
}

fn write_string(text: &str, layout: &Layout, out: &mut String) {
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
            c if layout.ensure_ascii && (c as u32) > 0x7e => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
