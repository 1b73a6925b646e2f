//! `%` and `str.format` of Python.

use super::args::CallArgs;
use super::error::{Error, Result};
use super::ops::{escape, getattr, getitem};
use super::print::{to_repr, to_str};
use super::value::*;
use crate::python_text::write_string_repr;

/// The widest field.
const WIDTH_MAX: usize = 1 << 20;

/// One field's layout, by `%` or by a format specification.
#[derive(Default, Clone)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    no_negative_zero: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(message)
}

fn read_count(chars: &[char], at: &mut usize) -> Result<Option<usize>> {
    let begin = *at;
    let mut count = 0usize;
    while let Some(digit) = chars.get(*at).and_then(|c| c.to_digit(10)) {
        count = count.saturating_mul(10).saturating_add(digit as usize);
        *at += 1;
    }
    if count > WIDTH_MAX {
        return Err(bad(format!("a field of {count} characters is too wide")));
    }
    Ok((*at > begin).then_some(count))
}

/// `text % args`
pub fn percent_format(text: &PyStr, args: &Value) -> Result<Value> {
    let chars: Vec<char> = text.chars().collect();
    let positional: Vec<Value> = match args {
        Value::Tuple(items) => items.as_ref().clone(),
        other => vec![other.clone()],
    };
    let (mut next, mut used_map) = (0, false);
    let mut out = String::new();
    let mut at = 0;
    while at < chars.len() {
        if chars[at] != '%' {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        at += 1;
        let mut take = || {
            let value = positional.get(next).cloned();
            next += 1;
            value.ok_or_else(|| bad("a format has more fields than values"))
        };
        let mut mapped = None;
        if chars.get(at) == Some(&'(') {
            let Value::Dict(dict) = args else { return Err(bad("a format needs a mapping")) };
            let (mut depth, begin) = (1, at + 1);
            while depth > 0 {
                at += 1;
                match chars.get(at) {
                    Some('(') => depth += 1,
                    Some(')') => depth -= 1,
                    None => return Err(bad("a format's key has no end")),
                    _ => {}
                }
            }
            let key: String = chars[begin..at].iter().collect();
            at += 1;
            let found = get_str(dict, &key).ok_or_else(|| bad(format!("no key {key:?}")))?;
            mapped = Some(found.clone());
            used_map = true;
        }
        let mut spec = Spec::default();
        while let Some(flag) = chars.get(at).filter(|c| "-+ #0".contains(**c)) {
            match flag {
                '-' => spec.align = Some('<'),
                '#' => spec.alternate = true,
                '0' => spec.zero = true,
                '+' => spec.sign = Some('+'),
                _ => spec.sign = spec.sign.or(Some(' ')),
            }
            at += 1;
        }
        let mut star = |at: &mut usize| -> Result<Option<i128>> {
            if chars.get(*at) != Some(&'*') {
                return Ok(read_count(&chars, at)?.map(|count| count as i128));
            }
            *at += 1;
            let width = take()?.as_int().filter(|width| width.unsigned_abs() <= WIDTH_MAX as u128);
            width.map(Some).ok_or_else(|| bad("* of a format wants an integer"))
        };
        let width = star(&mut at)?.unwrap_or(0);
        if width < 0 {
            spec.align = Some('<');
        }
        spec.width = width.unsigned_abs() as usize;
        if chars.get(at) == Some(&'.') {
            at += 1;
            spec.precision = Some(star(&mut at)?.unwrap_or(0).max(0) as usize);
        }
        while chars.get(at).is_some_and(|c| "hlL".contains(*c)) {
            at += 1;
        }
        let Some(kind) = chars.get(at).copied() else { return Err(bad("a format has no end")) };
        at += 1;
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = match mapped {
            Some(value) => value,
            None => take()?,
        };
        let field = percent_field(kind, &value, &spec, text.markup)?;
        out.push_str(&field);
    }
    let is_mapping =
        matches!(args, Value::Undefined(_) | Value::Dict(_) | Value::List(_) | Value::Range(_));
    if !used_map && next < positional.len() && !is_mapping {
        return Err(bad("a format has fewer fields than values"));
    }
    Ok(Value::text(out, text.markup))
}

fn percent_field(kind: char, value: &Value, spec: &Spec, markup: bool) -> Result<String> {
    let mut spec = spec.clone();
    if let 's' | 'r' | 'a' = kind {
        let mut text = match kind {
            's' => to_str(value)?,
            'r' => to_repr(value)?,
            _ => ascii(&to_repr(value)?),
        };
        let is_safe = kind == 's' && matches!(value, Value::Str(text) if text.markup);
        if markup && !is_safe {
            text = escape(&text);
        }
        if let Some(precision) = spec.precision {
            text = text.chars().take(precision).collect();
        }
        return Ok(pad(&text, &spec, '>'));
    }
    if kind == 'c' {
        let text = match value {
            Value::Str(text) if text.chars().count() == 1 => text.to_string(),
            other => {
                let code = other.as_int().and_then(|code| u32::try_from(code).ok());
                let c = code.and_then(char::from_u32);
                c.ok_or_else(|| bad("%c wants a character or its number"))?.to_string()
            }
        };
        return Ok(pad(&text, &spec, '>'));
    }
    let zero = spec.zero && spec.align.is_none();
    spec.zero = false;
    if zero {
        (spec.fill, spec.align) = (Some('0'), Some('='));
    }
    match kind {
        'd' | 'i' | 'u' => {
            let number = match number(value) {
                Some(Number::Int(number)) => number,
                Some(Number::Float(number)) => {
                    float_as_int(number.trunc()).ok_or_else(|| bad("a float is no integer"))?
                }
                None => return Err(not_a_number(kind, value)),
            };
            Ok(percent_int(number, 10, "", false, &spec))
        }
        'x' | 'X' | 'o' => {
            let Some(number) = value.as_int() else { return Err(not_a_number(kind, value)) };
            let (radix, prefix) = match kind {
                'x' => (16, "0x"),
                'X' => (16, "0X"),
                _ => (8, "0o"),
            };
            let prefix = if spec.alternate { prefix } else { "" };
            Ok(percent_int(number, radix, prefix, kind == 'X', &spec))
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            let number = match number(value) {
                Some(Number::Int(number)) => number as f64,
                Some(Number::Float(number)) => number,
                None => return Err(not_a_number(kind, value)),
            };
            spec.kind = Some(kind);
            format_float(number, &spec)
        }
        other => Err(bad(format!("a format has no conversion {other:?}"))),
    }
}

fn not_a_number(kind: char, value: &Value) -> Error {
    match value {
        Value::Undefined(undefined) => bad(undefined.message()),
        other => bad(format!("%{kind} wants a number, not a {}", other.type_name())),
    }
}

fn digits_of(number: i128, radix: u128, upper: bool) -> String {
    let mut rest = number.unsigned_abs();
    let mut digits = Vec::new();
    while rest > 0 || digits.is_empty() {
        let digit = char::from_digit((rest % radix) as u32, radix as u32).unwrap_or('0');
        digits.push(if upper { digit.to_ascii_uppercase() } else { digit });
        rest /= radix;
    }
    digits.into_iter().rev().collect()
}

fn percent_int(number: i128, radix: u128, prefix: &str, upper: bool, spec: &Spec) -> String {
    let mut digits = digits_of(number, radix, upper);
    if let Some(precision) = spec.precision {
        while digits.len() < precision {
            digits.insert(0, '0');
        }
    }
    pad_number(sign_of(number < 0, spec) + prefix, &digits, spec)
}

fn sign_of(negative: bool, spec: &Spec) -> String {
    match (negative, spec.sign) {
        (true, _) => "-".into(),
        (false, Some(sign @ ('+' | ' '))) => sign.to_string(),
        _ => String::new(),
    }
}

fn pad(text: &str, spec: &Spec, default: char) -> String {
    let missing = spec.width.saturating_sub(text.chars().count());
    let fill = spec.fill.unwrap_or(' ');
    let (left, right) = match spec.align.unwrap_or(default) {
        '<' => (0, missing),
        '^' => (missing / 2, missing - missing / 2),
        _ => (missing, 0),
    };
    let side = |count: usize| std::iter::repeat_n(fill, count).collect::<String>();
    side(left) + text + &side(right)
}

/// Sign or prefix in front of the fill where the alignment is `=`.
fn pad_number(head: String, body: &str, spec: &Spec) -> String {
    if spec.align != Some('=') {
        return pad(&(head + body), spec, '>');
    }
    let missing = spec.width.saturating_sub(head.chars().count() + body.chars().count());
    let fill = spec.fill.unwrap_or(' ');
    head + &std::iter::repeat_n(fill, missing).collect::<String>() + body
}

/// Digits in groups. With zeros as fill they take part, up to the field's width.
fn group(digits: &str, mark: char, size: usize, least: usize) -> String {
    let mut out: Vec<char> = Vec::new();
    let mut count = 0;
    let mut source = digits.chars().rev();
    loop {
        let next = source.next();
        if next.is_none() && out.len() >= least {
            break;
        }
        if count > 0 && count % size == 0 {
            out.push(mark);
        }
        out.push(next.unwrap_or('0'));
        count += 1;
    }
    out.into_iter().rev().collect()
}

fn grouped(head: &str, digits: &str, tail: &str, spec: &Spec) -> String {
    let Some(mark) = spec.grouping else { return digits.to_string() };
    let size = match spec.kind {
        Some('b' | 'o' | 'x' | 'X') => 4,
        _ => 3,
    };
    let is_zero_filled = spec.align == Some('=') && spec.fill == Some('0');
    let least = match is_zero_filled {
        true => spec.width.saturating_sub(head.chars().count() + tail.chars().count()),
        false => 0,
    };
    group(digits, mark, size, least)
}

fn exponent_form(number: f64, precision: usize, upper: bool) -> String {
    let text = format!("{number:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    let e = if upper { 'E' } else { 'e' };
    format!("{digits}{e}{sign}{:02}", exponent.abs())
}

/// `%g`: the shorter of both forms, with `precision` digits in all.
fn general_form(number: f64, precision: usize, upper: bool, keep_zeros: bool) -> String {
    let precision = precision.max(1);
    let as_exponent = format!("{:.*e}", precision - 1, number);
    let exponent: i32 = as_exponent.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    let trim = |digits: &str| match !keep_zeros && digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => digits.to_string(),
    };
    if (-4..precision as i32).contains(&exponent) {
        let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
        return trim(&format!("{number:.decimals$}"));
    }
    let text = exponent_form(number, precision - 1, upper);
    let at = text.find(['e', 'E']).unwrap_or(text.len());
    trim(&text[..at]) + &text[at..]
}

fn format_float(number: f64, spec: &Spec) -> Result<String> {
    let kind = spec.kind;
    let upper = matches!(kind, Some('E' | 'F' | 'G'));
    let magnitude = number.abs();
    let precision = spec.precision.unwrap_or(6);
    if precision > 2000 {
        return Err(bad("a float is printed with at most 2,000 digits"));
    }
    let mut body = if number.is_nan() {
        if upper {
            "NAN".into()
        } else {
            "nan".to_string()
        }
    } else if number.is_infinite() {
        if upper {
            "INF".into()
        } else {
            "inf".to_string()
        }
    } else {
        match kind {
            Some('f' | 'F') => format!("{magnitude:.precision$}"),
            Some('%') => format!("{:.precision$}", magnitude * 100.0),
            Some('e' | 'E') => exponent_form(magnitude, precision, upper),
            Some('g' | 'G' | 'n') => general_form(magnitude, precision, upper, spec.alternate),
            None => match spec.precision {
                None => crate::python_text::python_float(magnitude),
                // As `g`, with a digit behind the point and one less for the exponent.
                Some(precision) => short_form(magnitude, precision),
            },
            Some(other) => return Err(bad(format!("a float has no format {other:?}"))),
        }
    };
    if spec.alternate && number.is_finite() && !body.contains('.') {
        let at = body.find(['e', 'E']).unwrap_or(body.len());
        body.insert(at, '.');
    }
    let mut negative = number.is_sign_negative() && !number.is_nan();
    if spec.no_negative_zero && body.chars().all(|c| matches!(c, '0' | '.')) {
        negative = false;
    }
    let head = sign_of(negative, spec);
    let at = body.find(|c: char| !c.is_ascii_digit()).unwrap_or(body.len());
    let mut tail = body[at..].to_string();
    if kind == Some('%') {
        tail.push('%');
    }
    let digits = match number.is_finite() {
        true => grouped(&head, &body[..at], &tail, spec),
        false => String::new(),
    };
    Ok(pad_number(head, &(digits + &tail), spec))
}

fn short_form(number: f64, precision: usize) -> String {
    let precision = precision.max(1);
    let as_exponent = format!("{:.*e}", precision - 1, number);
    let exponent: i32 = as_exponent.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    if exponent >= precision as i32 - 1 && exponent >= 0 {
        if exponent >= precision as i32 {
            return general_form(number, precision, false, false);
        }
        let text = exponent_form(number, precision - 1, false);
        let at = text.find('e').unwrap_or(text.len());
        let digits = text[..at].trim_end_matches('0').trim_end_matches('.');
        return format!("{digits}{}", &text[at..]);
    }
    let text = general_form(number, precision, false, false);
    match text.contains(['.', 'e']) {
        true => text,
        false => text + ".0",
    }
}

fn parse_spec(text: &str) -> Result<Spec> {
    let chars: Vec<char> = text.chars().collect();
    let mut spec = Spec::default();
    let mut at = 0;
    let is_align = |at: usize| chars.get(at).is_some_and(|c| "<>=^".contains(*c));
    if is_align(1) {
        (spec.fill, spec.align) = (Some(chars[0]), Some(chars[1]));
        at = 2;
    } else if is_align(0) {
        spec.align = Some(chars[0]);
        at = 1;
    }
    let skip = |at: &mut usize, wanted: &str| {
        let found = chars.get(*at).copied().filter(|c| wanted.contains(*c));
        *at += usize::from(found.is_some());
        found
    };
    spec.sign = skip(&mut at, "+- ");
    spec.no_negative_zero = skip(&mut at, "z").is_some();
    spec.alternate = skip(&mut at, "#").is_some();
    spec.zero = skip(&mut at, "0").is_some();
    spec.width = read_count(&chars, &mut at)?.unwrap_or(0);
    spec.grouping = skip(&mut at, ",_");
    if skip(&mut at, ".").is_some() {
        let precision = read_count(&chars, &mut at)?;
        spec.precision = Some(precision.ok_or_else(|| bad("a format has no precision"))?);
    }
    if at < chars.len() {
        spec.kind = Some(chars[at]);
        at += 1;
    }
    if at < chars.len() {
        return Err(bad(format!("the format {text:?} can't be read")));
    }
    if spec.zero && spec.fill.is_none() {
        spec.fill = Some('0');
        spec.align = spec.align.or(Some('='));
    }
    Ok(spec)
}

/// `format(value, text)`
fn format_value(value: &Value, text: &str) -> Result<String> {
    if text.is_empty() {
        return to_str(value);
    }
    let spec = parse_spec(text)?;
    match value {
        Value::Str(string) => {
            let unfit = spec.sign.is_some()
                || spec.alternate
                || spec.grouping.is_some()
                || spec.no_negative_zero
                || (spec.align == Some('=') && !spec.zero)
                || spec.kind.is_some_and(|kind| kind != 's');
            if unfit {
                return Err(bad(format!("the format {text:?} is not one for a string")));
            }
            let mut spec = spec;
            if spec.align == Some('=') {
                spec.align = Some('<');
            }
            let shown = match spec.precision {
                Some(precision) => string.chars().take(precision).collect(),
                None => string.to_string(),
            };
            Ok(pad(&shown, &spec, '<'))
        }
        Value::Float(number) => format_float(*number, &spec),
        Value::Int(number) => format_int(*number, &spec),
        Value::Bool(yes) => format_int(i128::from(*yes), &spec),
        other => Err(bad(format!("a {} has no format {text:?}", other.type_name()))),
    }
}

fn format_int(number: i128, spec: &Spec) -> Result<String> {
    if matches!(spec.kind, Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%')) {
        return format_float(number as f64, spec);
    }
    if spec.precision.is_some() || spec.no_negative_zero {
        return Err(bad("an integer's format has no precision"));
    }
    let (radix, prefix) = match spec.kind {
        None | Some('d' | 'n') => (10, ""),
        Some('b') => (2, "0b"),
        Some('o') => (8, "0o"),
        Some('x') => (16, "0x"),
        Some('X') => (16, "0X"),
        Some('c') => {
            let c = u32::try_from(number).ok().and_then(char::from_u32);
            let text = c.ok_or_else(|| bad("a number stands for no character"))?.to_string();
            return Ok(pad(&text, spec, '>'));
        }
        Some(other) => return Err(bad(format!("an integer has no format {other:?}"))),
    };
    if spec.grouping == Some(',') && radix != 10 {
        return Err(bad("commas only stand in decimal numbers"));
    }
    let head = sign_of(number < 0, spec) + if spec.alternate { prefix } else { "" };
    let digits = digits_of(number, radix, spec.kind == Some('X'));
    let body = grouped(&head, &digits, "", spec);
    Ok(pad_number(head, &body, spec))
}

/// `text.format(…)`
pub fn str_format(text: &PyStr, args: &CallArgs) -> Result<Value> {
    let mut state = Fields { args, next: 0, manual: false, markup: text.markup };
    Ok(Value::text(state.render(text, 2)?, text.markup))
}

struct Fields<'a> {
    args: &'a CallArgs,
    next: usize,
    manual: bool,
    markup: bool,
}

impl Fields<'_> {
    fn render(&mut self, text: &str, depth: usize) -> Result<String> {
        if depth == 0 {
            return Err(bad("the fields of a format are nested too deep"));
        }
        let chars: Vec<char> = text.chars().collect();
        let mut out = String::new();
        let mut at = 0;
        while at < chars.len() {
            let c = chars[at];
            at += 1;
            let doubled = chars.get(at) == Some(&c);
            match c {
                '{' | '}' if doubled => {
                    out.push(c);
                    at += 1;
                }
                '}' => return Err(bad("a single '}' stands in a format")),
                '{' => {
                    let (mut open, begin) = (1, at);
                    while open > 0 {
                        match chars.get(at) {
                            Some('{') => open += 1,
                            Some('}') => open -= 1,
                            None => return Err(bad("a field of a format has no end")),
                            _ => {}
                        }
                        at += 1;
                    }
                    let field: String = chars[begin..at - 1].iter().collect();
                    out.push_str(&self.field(&field, depth)?);
                }
                _ => out.push(c),
            }
        }
        Ok(out)
    }

    fn field(&mut self, field: &str, depth: usize) -> Result<String> {
        // A colon or an exclamation mark inside of brackets belongs to the key.
        let mut inside = false;
        let end = field.find(|c: char| {
            inside = (inside || c == '[') && c != ']';
            !inside && (c == ':' || c == '!')
        });
        let (name, rest) = field.split_at(end.unwrap_or(field.len()));
        let mut value = self.lookup(name)?;
        let mut spec = rest.strip_prefix(':').unwrap_or("");
        if let Some(rest) = rest.strip_prefix('!') {
            let mut chars = rest.chars();
            value = match chars.next() {
                Some('s') => Value::from(to_str(&value)?),
                Some('r') => Value::from(to_repr(&value)?),
                Some('a') => Value::from(ascii(&to_repr(&value)?)),
                _ => return Err(bad("a format's conversion is none of r, s and a")),
            };
            spec = match chars.as_str() {
                "" => "",
                more => more.strip_prefix(':').ok_or_else(|| bad("':' expected in a format"))?,
            };
        }
        let spec = self.render(spec, depth - 1 + usize::from(spec.is_empty()))?;
        let text = format_value(&value, &spec)?;
        let is_safe = matches!(&value, Value::Str(text) if text.markup);
        Ok(if self.markup && !is_safe { escape(&text) } else { text })
    }

    fn lookup(&mut self, name: &str) -> Result<Value> {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut rest) = name.split_at(end);
        let mut value = if first.is_empty() || first.chars().all(|c| c.is_ascii_digit()) {
            let manual = !first.is_empty();
            if self.next > 0 && manual != self.manual {
                return Err(bad("a format mixes numbered and unnumbered fields"));
            }
            self.manual = manual;
            let at = if manual { first.parse().unwrap_or(usize::MAX) } else { self.next };
            self.next += 1;
            let found = self.args.positional.get(at);
            if !manual && found.is_none() {
                return Err(bad("a format has more fields than values"));
            }
            found.cloned().ok_or_else(|| bad("a format names a value that isn't there"))?
        } else {
            let found = self.args.named.iter().find(|(known, _)| known == first);
            found.ok_or_else(|| bad(format!("a format has no value {first:?}")))?.1.clone()
        };
        while !rest.is_empty() {
            if let Some(more) = rest.strip_prefix('.') {
                let end = more.find(['.', '[']).unwrap_or(more.len());
                if end == 0 {
                    return Err(bad("a format has an empty attribute"));
                }
                value = getattr(&value, &more[..end].into())?;
                rest = &more[end..];
            } else {
                let more =
                    rest.strip_prefix('[').ok_or_else(|| bad("only '.' or '[' may follow"))?;
                let end = more.find(']').ok_or_else(|| bad("']' is missing in a format"))?;
                let key = &more[..end];
                let key = match key.parse::<i128>() {
                    Ok(index) if key.bytes().all(|b| b.is_ascii_digit()) => Value::Int(index),
                    _ if key.is_empty() => return Err(bad("a format has an empty key")),
                    _ => Value::from(key),
                };
                value = getitem(&value, &key)?;
                rest = &more[end + 1..];
            }
        }
        Ok(value)
    }
}

/// `ascii()` of what `repr()` gave.
fn ascii(repr: &str) -> String {
    let mut out = String::new();
    for c in repr.chars() {
        if c.is_ascii() {
            out.push(c);
            continue;
        }
        let mut quoted = String::new();
        write_string_repr(c.encode_utf8(&mut [0; 4]), true, &mut quoted);
        out.push_str(quoted.trim_matches('\''));
    }
    out
}
