//! Values as Python prints them, and strings as Python strips and splits them.
//!
//! Templates are written against Python's Jinja: `{{ true }}` is `True` there, a float keeps its
//! `.0`, and `strip()` knows a few control characters that Unicode's White_Space doesn't.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// How deep lists and maps may be nested when they are printed or turned into JSON.
pub const PRINT_DEPTH_MAX: usize = 64;

/// What `str.isspace()` is true for: White_Space and the four information separators.
pub fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// `str(value)` of Python; an undefined value prints as nothing, as Jinja has it.
pub fn python_str(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_string());
    }
    if value.is_undefined() {
        return Ok(String::new());
    }
    let mut out = String::new();
    write_repr(value, 0, &mut out)?;
    Ok(out)
}

pub fn too_deep() -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("a value is nested more than {PRINT_DEPTH_MAX} levels deep"),
    )
}

fn write_repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > PRINT_DEPTH_MAX {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&python_number(value)),
        ValueKind::String => write_string_repr(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_repr(&item, depth + 1, out)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_repr(&key, depth + 1, out)?;
                out.push_str(": ");
                write_repr(&value.get_item(&key)?, depth + 1, out)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// A number as Python prints it: `1`, `1.0`, `1e-07`, `1e+16`, `inf`.
pub fn python_number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(number) => python_float(number),
        Err(_) => value.to_string(),
    }
}

/// `repr(float)`: the shortest digits that read back, with an exponent outside of 1e-4 .. 1e16.
pub fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let shortest = format!("{number:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number == 0.0 || (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn write_string_repr(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 || (0x7f..0xa1).contains(&(c as u32)) || c == '\u{ad}' => {
                out.push_str(&format!("\\x{:02x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// `str.strip(chars)` and its one-sided forms; without `chars`, white space goes.
pub fn python_strip(text: &str, chars: Option<&str>, left: bool, right: bool) -> String {
    let gone = |c: char| match chars {
        Some(set) => set.contains(c),
        None => is_python_space(c),
    };
    let mut rest = text;
    if left {
        rest = rest.trim_start_matches(gone);
    }
    if right {
        rest = rest.trim_end_matches(gone);
    }
    rest.to_string()
}

/// `str.split()` without a separator: runs of white space part the words.
pub fn python_split_spaces(text: &str) -> Vec<Value> {
    text.split(is_python_space).filter(|word| !word.is_empty()).map(Value::from).collect()
}

/// `str.splitlines()`: every line break that Python knows, and no empty last line.
pub fn python_split_lines(text: &str) -> Vec<Value> {
    let is_break = |c: char| {
        matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}')
            || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_break).unwrap_or(rest.len());
        lines.push(Value::from(&rest[..end]));
        let after = &rest[end..];
        let skip = match after.strip_prefix("\r\n") {
            Some(_) => 2,
            None => after.chars().next().map_or(0, char::len_utf8),
        };
        rest = &after[skip..];
    }
    lines
}

/// `str.title()`: a letter is large exactly when no letter stands before it.
pub fn python_title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            // A ligature's capital is several letters, of which only the first is large here.
            let mut upper = c.to_uppercase();
            out.extend(upper.next());
            out.extend(upper.flat_map(char::to_lowercase));
        }
        inside = c.is_lowercase() || c.is_uppercase();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_printed_as_python_does() {
        for (number, text) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e16, "1e+16"),
            (123456789012345.0, "123456789012345.0"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (1.5e300, "1.5e+300"),
        ] {
            assert_eq!(python_float(number), text);
        }
    }

    #[test]
    fn lines_and_titles() {
        let lines = python_split_lines("a\r\nb\rc\n\nd\u{2028}");
        assert_eq!(python_str(&Value::from(lines)).unwrap(), "['a', 'b', 'c', '', 'd']");
        assert_eq!(python_title("they're 2nd \u{1f600}x \u{fb01}n"), "They'Re 2Nd \u{1f600}X Fin");
    }

    #[test]
    fn containers_are_printed_with_single_quotes() {
        let value = Value::from_serialize(serde_json::json!({"a": [true, null, "it's", "x\n"]}));
        assert_eq!(python_str(&value).unwrap(), r#"{'a': [True, None, "it's", 'x\n']}"#);
    }
}
