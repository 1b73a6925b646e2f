//! Jinja's filters for single values; `sequences` has those for many.

use super::args::{index, soft_str, CallArgs};
use super::error::{Error, Result};
use super::format::percent_format;
use super::known;
use super::methods;
use super::ops::{attribute, escape, getattr};
use super::print::to_str;
use super::sequences;
use super::str_methods::{justify, replace_text};
use super::value::*;
use crate::python_text::*;

/// `value | name(args)`
pub fn apply(name: &str, value: Value, args: CallArgs) -> Result<Value> {
    match name {
        "upper" | "lower" | "capitalize" => {
            args.none(name)?;
            methods::call(&Value::Str(soft_str(&value)?), method(name), CallArgs::default())
        }
        "title" => {
            args.none(name)?;
            let text = soft_str(&value)?;
            Ok(Value::text(title(&text), text.markup))
        }
        "trim" => {
            let [chars] = args.bind(name, ["chars"], 0)?;
            let args = CallArgs::of(chars.into_iter().collect());
            methods::call(&Value::Str(soft_str(&value)?), "strip", args)
        }
        "string" => {
            args.none(name)?;
            Ok(Value::Str(soft_str(&value)?))
        }
        "safe" => {
            args.none(name)?;
            Ok(Value::text(to_str(&value)?, true))
        }
        "e" | "escape" => {
            args.none(name)?;
            Ok(match &value {
                Value::Str(text) if text.markup => value,
                other => Value::text(escape(&to_str(other)?), true),
            })
        }
        "forceescape" => {
            args.none(name)?;
            Ok(Value::text(escape(&to_str(&value)?), true))
        }
        "center" => {
            let [width] = args.bind(name, ["width"], 0)?;
            let text = soft_str(&value)?;
            let width = width.unwrap_or(Value::Int(80));
            Ok(Value::text(justify(&text, "center", Some(width), ' ')?, text.markup))
        }
        "replace" => replace(value, args),
        "default" | "d" => {
            let [default, boolean] = args.bind(name, ["default_value", "boolean"], 0)?;
            let also_false = boolean.is_some_and(|boolean| boolean.is_true());
            Ok(match value.is_undefined() || also_false && !value.is_true() {
                true => default.unwrap_or_else(|| Value::from("")),
                false => value,
            })
        }
        "length" | "count" => {
            args.none(name)?;
            let length = match &value {
                Value::Loop(state) => Some(super::loops::length(state)? as usize),
                other => other.length(),
            };
            length
                .map(Value::int)
                .ok_or_else(|| Error::new(format!("a {} has no length", value.type_name())))
        }
        "abs" => {
            args.none(name)?;
            match number(&value) {
                Some(Number::Int(number)) => Ok(Value::Int(number.abs())),
                Some(Number::Float(number)) => Ok(Value::Float(number.abs())),
                None => Err(not_a_number(name, &value)),
            }
        }
        "int" => int(value, args),
        "float" => {
            let [default] = args.bind(name, ["default"], 0)?;
            Ok(match to_float(&value)? {
                Some(number) => Value::Float(number),
                None => default.unwrap_or(Value::Float(0.0)),
            })
        }
        "round" => round(value, args),
        "format" => format(value, args),
        "attr" => {
            let [attr] = args.bind(name, ["name"], 1)?;
            let attr = soft_str(&attr.unwrap_or(Value::None))?;
            match attribute(&value, &attr)? {
                Some(_) => getattr(&value, &attr.text),
                None => Ok(Value::missing(attr.text, Why::Attribute)),
            }
        }
        "indent" => indent(value, args),
        "truncate" => truncate(value, args),
        "wordcount" => {
            args.none(name)?;
            let text = soft_str(&value)?;
            let words = text.split(|c| !is_word_char(c)).filter(|word| !word.is_empty());
            Ok(Value::int(words.count()))
        }
        "filesizeformat" => file_size(value, args),
        "urlencode" => url_encode(value, args),
        "xmlattr" => xml_attributes(value, args),
        "tojson" => crate::python_json::tojson(&value, args),
        _ => match known::filter(name) {
            known::Known::Yes => sequences::apply(name, value, args),
            known::Known::Unsupported => Err(Error::unsupported(format!("the filter {name:?}"))),
            known::Known::No => Err(Error::new(format!("there is no filter {name:?}"))),
        },
    }
}

fn method(name: &str) -> &'static str {
    match name {
        "upper" => "upper",
        "lower" => "lower",
        _ => "capitalize",
    }
}

fn not_a_number(what: &str, value: &Value) -> Error {
    match value {
        Value::Undefined(undefined) => Error::new(undefined.message()),
        other => Error::new(format!("{what} needs a number, not a {}", other.type_name())),
    }
}

/// Jinja's own title case: words begin behind blanks, hyphens and opening brackets.
fn title(text: &str) -> String {
    let is_between = |c: char| is_python_space(c) || "-({[<".contains(c);
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let begin = rest.find(|c| !is_between(c)).unwrap_or(rest.len());
        out.push_str(&rest[..begin].to_lowercase());
        let word = &rest[begin..];
        let end = word.find(is_between).unwrap_or(word.len());
        if let Some(first) = word[..end].chars().next() {
            out.extend(first.to_uppercase());
            out.push_str(&word[first.len_utf8()..end].to_lowercase());
        }
        rest = &word[end..];
    }
    out
}

fn replace(value: Value, args: CallArgs) -> Result<Value> {
    let [old, new, count] = args.bind("replace", ["old", "new", "count"], 2)?;
    let count = match count {
        None | Some(Value::None) => -1,
        Some(count) => index(&count)?,
    };
    let text = |value: Option<Value>| to_str(&value.unwrap_or(Value::None));
    Ok(replace_text(&to_str(&value)?, &text(old)?, &text(new)?, count)?.into())
}

/// `int(text, base)`
fn parse_int(text: &str, base: i128) -> Result<Option<i128>> {
    let text = python_strip(text, None, true, true);
    let negative = text.starts_with('-');
    let mut digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let prefix = digits.get(..2).map(str::to_ascii_lowercase);
    let mut radix = match base {
        0 => 10,
        2..=36 => base as u32,
        _ => return Ok(None),
    };
    for (mark, of) in [("0b", 2), ("0o", 8), ("0x", 16)] {
        if prefix.as_deref() == Some(mark) && (base == 0 || radix == of) {
            radix = of;
            digits = &digits[2..];
            digits = digits.strip_prefix('_').unwrap_or(digits);
            break;
        }
    }
    let mut plain = String::new();
    let mut before = '_';
    for c in digits.chars() {
        // Digits of other scripts count too.
        let value = c.to_digit(radix).or_else(|| decimal_of(c).filter(|digit| *digit < radix));
        match (c, value) {
            ('_', _) if before != '_' => {}
            (_, Some(digit)) => plain.extend(char::from_digit(digit, radix)),
            _ => return Ok(None),
        }
        before = c;
    }
    if plain.is_empty() || before == '_' {
        return Ok(None);
    }
    let is_old_octal = base == 0 && radix == 10 && plain.len() > 1 && plain.starts_with('0');
    if is_old_octal && plain.bytes().any(|b| b != b'0') {
        return Ok(None);
    }
    match i128::from_str_radix(&plain, radix) {
        Ok(number) => Ok(Some(if negative { -number } else { number })),
        Err(_) => Err(Error::new("an integer has more than 128 bits")),
    }
}

/// The value of a decimal digit of any script, whose ten digits follow each other.
fn decimal_of(c: char) -> Option<u32> {
    if !DECIMAL.has(c) {
        return None;
    }
    if ('\u{1d7ce}'..='\u{1d7ff}').contains(&c) {
        return Some((c as u32 - 0x1d7ce) % 10);
    }
    let before =
        (0..10).take_while(|back| char::from_u32(c as u32 - back).is_some_and(|c| DECIMAL.has(c)));
    Some(before.count() as u32 - 1).filter(|digit| *digit < 10)
}

/// `float(value)`; `None` where Python raises a TypeError or a ValueError.
pub fn to_float(value: &Value) -> Result<Option<f64>> {
    let text = match value {
        Value::Str(text) => text,
        Value::Undefined(undefined) => return Err(Error::new(undefined.message())),
        other => {
            return Ok(number(other).map(|number| match number {
                Number::Int(number) => number as f64,
                Number::Float(number) => number,
            }))
        }
    };
    let text = python_strip(text, None, true, true);
    let bytes = text.as_bytes();
    let is_digit =
        |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let misplaced = |(at, b): (usize, &u8)| {
        *b == b'_' && !(is_digit(at.checked_sub(1)) && is_digit(Some(at + 1)))
    };
    if bytes.iter().enumerate().any(misplaced) {
        return Ok(None);
    }
    let plain: String = text
        .chars()
        .filter(|c| *c != '_')
        .map(|c| decimal_of(c).and_then(|d| char::from_digit(d, 10)).unwrap_or(c))
        .collect();
    let lower = plain.trim_start_matches(['+', '-']).to_ascii_lowercase();
    let is_word = matches!(lower.as_str(), "inf" | "infinity" | "nan");
    if !is_word && lower.bytes().any(|b| b.is_ascii_alphabetic() && b != b'e') {
        return Ok(None);
    }
    Ok(plain.parse().ok())
}

fn int(value: Value, args: CallArgs) -> Result<Value> {
    let [default, base] = args.bind("int", ["default", "base"], 0)?;
    let base = base.as_ref().map_or(Ok(10), index)?;
    let whole = match &value {
        Value::Undefined(undefined) => return Err(Error::new(undefined.message())),
        Value::Str(text) => parse_int(text, base)?,
        other => other.as_int(),
    };
    if let Some(number) = whole {
        return Ok(Value::Int(number));
    }
    let float = to_float(&value)?;
    if matches!(value, Value::Float(number) if number.is_infinite()) {
        return Err(Error::new("infinity is no integer"));
    }
    match float.map(|number| number.trunc()) {
        Some(number) if number.is_finite() => {
            let number = float_as_int(number);
            number.map(Value::Int).ok_or_else(|| Error::new("an integer has more than 128 bits"))
        }
        _ => Ok(default.unwrap_or(Value::Int(0))),
    }
}

/// `round(number, digits)` of Python, which rounds the exact value, halves to even.
fn round_float(number: f64, digits: i128) -> f64 {
    if !number.is_finite() || digits > 400 {
        return number;
    }
    if digits >= 0 {
        return format!("{number:.*}", digits as usize).parse().unwrap_or(number);
    }
    // In front of the point: by the digits that the exact value has.
    let exact = format!("{:.0}", number.abs().trunc());
    let cut = exact.len() as i128 + digits;
    if cut < 0 || digits < -400 {
        return 0.0f64.copysign(number);
    }
    let (kept, gone) = exact.split_at(cut as usize);
    let has_more = number.fract() != 0.0;
    let half = format!("5{}", "0".repeat(gone.len() - 1));
    let is_up = match gone.cmp(&half) {
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => has_more || kept.bytes().last().is_some_and(|b| b % 2 == 1),
        std::cmp::Ordering::Less => false,
    };
    let kept: f64 = if kept.is_empty() { 0.0 } else { kept.parse().unwrap_or(0.0) };
    let text = format!("{}e{}", kept + f64::from(u8::from(is_up)), -digits);
    text.parse::<f64>().unwrap_or(number).copysign(number)
}

fn round(value: Value, args: CallArgs) -> Result<Value> {
    let [precision, how] = args.bind("round", ["precision", "method"], 0)?;
    let how = how.unwrap_or_else(|| Value::from("common"));
    let how = how.as_str().unwrap_or_default();
    if !matches!(how, "common" | "ceil" | "floor") {
        return Err(Error::new("round knows the methods common, ceil and floor"));
    }
    let Some(amount) = number(&value) else { return Err(not_a_number("round", &value)) };
    if how == "common" {
        return match (amount, precision) {
            (Number::Float(number), None) => Ok(Value::Float(round_float(number, 0))),
            (Number::Float(number), Some(Value::None)) => {
                let whole = float_as_int(number.round_ties_even());
                whole.map(Value::Int).ok_or_else(|| Error::new("a float is no integer"))
            }
            (Number::Float(number), Some(digits)) => {
                Ok(Value::Float(round_float(number, index(&digits)?)))
            }
            (Number::Int(number), None | Some(Value::None)) => Ok(Value::Int(number)),
            (Number::Int(number), Some(digits)) => round_int(number, index(&digits)?),
        };
    }
    let digits = precision.map_or(Ok(0), |digits| index(&digits))?;
    let scale = super::ops::binary(super::ast::BinOp::Pow, &Value::Int(10), &Value::Int(digits))?;
    let scaled = super::ops::binary(super::ast::BinOp::Mul, &value, &scale)?;
    let whole = match scaled {
        Value::Float(number) => {
            let number = if how == "ceil" { number.ceil() } else { number.floor() };
            let whole = float_as_int(number);
            Value::Int(whole.ok_or_else(|| Error::new("an integer has more than 128 bits"))?)
        }
        other => other,
    };
    super::ops::binary(super::ast::BinOp::Div, &whole, &scale)
}

fn round_int(number: i128, digits: i128) -> Result<Value> {
    if digits >= 0 {
        return Ok(Value::Int(number));
    }
    let Some(scale) = u32::try_from(-digits).ok().and_then(|d| 10i128.checked_pow(d)) else {
        return Ok(Value::Int(0));
    };
    let (down, rest) = (number.div_euclid(scale), number.rem_euclid(scale));
    let is_up = rest * 2 > scale || rest * 2 == scale && down.rem_euclid(2) == 1;
    Ok(Value::Int((down + i128::from(is_up)) * scale))
}

fn format(value: Value, args: CallArgs) -> Result<Value> {
    if !args.positional.is_empty() && !args.named.is_empty() {
        return Err(Error::new("format takes values in a row or by name, not both"));
    }
    let text = soft_str(&value)?;
    if args.named.is_empty() {
        return percent_format(&text, &Value::tuple(args.positional));
    }
    let named = args.named.into_iter().map(|(name, value)| (Key(Value::from(name)), value));
    percent_format(&text, &Value::dict(named.collect()))
}

fn indent(value: Value, args: CallArgs) -> Result<Value> {
    let [width, first, blank] = args.bind("indent", ["width", "first", "blank"], 0)?;
    let is_true = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let (first, blank) = (is_true(first), is_true(blank));
    let Value::Str(text) = &value else { return Err(not_text("indent", &value)) };
    let mut by = match &width {
        None => "    ".to_string(),
        Some(Value::Str(by)) => by.to_string(),
        Some(width) => " ".repeat(index(width)?.clamp(0, 1 << 16) as usize),
    };
    if text.markup {
        by = match &width {
            Some(Value::Str(by)) if by.markup => by.to_string(),
            _ => by,
        };
    }
    let with_end = text.to_string() + "\n";
    let lines = python_split_lines(&with_end, false);
    let mut out = String::new();
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        let is_indented = if i == 0 { first } else { blank || !line.is_empty() };
        if is_indented {
            out.push_str(&by);
        }
        out.push_str(line);
    }
    Ok(Value::text(out, text.markup))
}

fn not_text(what: &str, value: &Value) -> Error {
    match value {
        Value::Undefined(undefined) => Error::new(undefined.message()),
        other => Error::new(format!("{what} needs a string, not a {}", other.type_name())),
    }
}

fn truncate(value: Value, args: CallArgs) -> Result<Value> {
    let names = ["length", "killwords", "end", "leeway"];
    let [length, kill, end, leeway] = args.bind("truncate", names, 0)?;
    let length = length.as_ref().map_or(Ok(255), index)?;
    let leeway = match &leeway {
        None | Some(Value::None) => 5,
        Some(leeway) => index(leeway)?,
    };
    let end = end.unwrap_or_else(|| Value::from("..."));
    let Value::Str(end) = &end else { return Err(not_text("truncate", &end)) };
    let text = match &value {
        Value::Str(text) => text.clone(),
        other if length >= end.chars().count() as i128 && leeway >= 0 => {
            let is_short = other.length().is_some_and(|size| size as i128 <= length + leeway);
            return match is_short {
                true => Ok(value),
                false => Err(not_text("truncate", other)),
            };
        }
        other => return Err(not_text("truncate", other)),
    };
    let end_length = end.chars().count() as i128;
    if length < end_length || leeway < 0 {
        return Err(Error::new("truncate to less than what is put at the end"));
    }
    if text.chars().count() as i128 <= length + leeway {
        return Ok(value);
    }
    let mut kept: String = text.chars().take((length - end_length) as usize).collect();
    if !kill.is_some_and(|kill| kill.is_true()) {
        if let Some(at) = kept.rfind(' ') {
            kept.truncate(at);
        }
    }
    let markup = text.markup || end.markup;
    let part = |part: &str, safe: bool| match markup && !safe {
        true => escape(part),
        false => part.to_string(),
    };
    Ok(Value::text(part(&kept, text.markup) + &part(end, end.markup), markup))
}

fn file_size(value: Value, args: CallArgs) -> Result<Value> {
    let [binary] = args.bind("filesizeformat", ["binary"], 0)?;
    let binary = binary.is_some_and(|binary| binary.is_true());
    let bytes = to_float(&value)?.ok_or_else(|| not_a_number("filesizeformat", &value))?;
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    let unit_names = match binary {
        true => ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"],
        false => ["kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"],
    };
    if bytes == 1.0 {
        return Ok("1 Byte".into());
    }
    if bytes < base {
        return Ok(format!("{} Bytes", bytes.trunc() as i64).into());
    }
    let mut unit = base;
    for (i, name) in unit_names.iter().enumerate() {
        unit *= base;
        if bytes < unit || i + 1 == unit_names.len() {
            return Ok(format!("{:.1} {name}", base * bytes / unit).into());
        }
    }
    Ok(Value::None)
}

fn quote_url(text: &str, in_query: bool) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'.' | b'_' | b'~' => {
                out.push(byte as char);
            }
            b'/' if !in_query => out.push('/'),
            b' ' if in_query => out.push('+'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn url_encode(value: Value, args: CallArgs) -> Result<Value> {
    args.none("urlencode")?;
    let pairs = match &value {
        Value::Str(text) => return Ok(quote_url(text, false).into()),
        Value::Dict(dict) => pairs(dict),
        other => match other.iter() {
            Ok(_) => other.items()?,
            Err(_) => return Ok(quote_url(&to_str(other)?, false).into()),
        },
    };
    let mut parts = Vec::new();
    for pair in pairs {
        let pair = pair.items()?;
        let [key, value] = &pair[..] else { return Err(Error::new("urlencode needs pairs")) };
        parts.push(format!(
            "{}={}",
            quote_url(&to_str(key)?, true),
            quote_url(&to_str(value)?, true)
        ));
    }
    Ok(parts.join("&").into())
}

fn xml_attributes(value: Value, args: CallArgs) -> Result<Value> {
    let [space] = args.bind("xmlattr", ["autospace"], 0)?;
    let Value::Dict(dict) = &value else { return Err(not_text("xmlattr", &value)) };
    let mut parts = Vec::new();
    let quote = |value: &Value| match value {
        Value::Str(text) if text.markup => Ok(text.to_string()),
        other => Ok(escape(&to_str(other)?)),
    };
    for (key, value) in dict.iter() {
        if matches!(value, Value::None | Value::Undefined(_)) {
            continue;
        }
        let Value::Str(name) = &key.0 else { return Err(not_text("xmlattr", &key.0)) };
        if name.contains([' ', '\t', '\n', '\r', '\u{b}', '\u{c}', '/', '>', '=']) {
            return Err(Error::new(format!("{:?} can't name an attribute", &**name)));
        }
        parts.push(format!("{}=\"{}\"", quote(&key.0)?, quote(value)?));
    }
    let text = parts.join(" ");
    let has_space = space.is_none_or(|space| space.is_true()) && !text.is_empty();
    Ok(if has_space { format!(" {text}") } else { text }.into())
}
