//! Methods of Python's `str`.

use super::args::{index, string, CallArgs};
use super::error::{Error, Kind, Result};
use super::format::str_format;
use super::methods::fit;
use super::ops::{escape, slice_bounds};
use super::value::*;
use crate::bounded;
use crate::python_text::*;

/// The longest padded text.
const WIDTH_MAX: i128 = 1 << 24;

pub fn call(text: &PyStr, name: &'static str, args: CallArgs) -> Result<Value> {
    let same_kind = |new: &str| Ok(Value::text(new.to_string(), text.markup));
    match name {
        "upper" | "lower" | "capitalize" | "title" | "swapcase" => {
            args.none(name)?;
            same_kind(&match name {
                "upper" => text.to_uppercase(),
                "lower" => text.to_lowercase(),
                "capitalize" => python_capitalize(text),
                "title" => python_title(text),
                _ => python_swapcase(text),
            })
        }
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = args.unnamed(name, 0)?;
            let chars = match &chars {
                None | Some(Value::None) => None,
                Some(chars) => Some(fit(text.markup, chars, name)?),
            };
            let (left, right) = (name != "rstrip", name != "lstrip");
            same_kind(python_strip(text, chars.as_deref(), left, right))
        }
        "split" | "rsplit" => split(text, name == "rsplit", args),
        "splitlines" => {
            let [keep] = args.bind(name, ["keepends"], 0)?;
            let lines = python_split_lines(text, keep.is_some_and(|keep| keep.is_true()));
            let items = lines.into_iter().map(|line| Value::text(line.into(), text.markup));
            Ok(Value::list(items.collect()))
        }
        "join" => {
            let [items] = args.unnamed(name, 1)?;
            join(text, &items.unwrap_or(Value::None))
        }
        "replace" => replace(text, args),
        "startswith" | "endswith" => affix(text, name == "startswith", args),
        "find" | "rfind" | "index" | "rindex" | "count" => find(text, name, args),
        "format" => str_format(text, &args),
        "format_map" => {
            let [mapping] = args.unnamed(name, 1)?;
            let Some(Value::Dict(dict)) = &mapping else {
                return Err(Error::new("format_map needs a dict"));
            };
            let mut args = CallArgs::default();
            for (key, value) in dict.iter() {
                args.named.extend(key.0.as_str().map(|key| (key.to_string(), value.clone())));
            }
            str_format(text, &args)
        }
        "zfill" => {
            let [width] = args.unnamed(name, 1)?;
            let missing = missing(text, &width)?;
            let zeros = "0".repeat(missing);
            same_kind(&match text.chars().next() {
                Some(sign @ ('+' | '-')) => format!("{sign}{zeros}{}", &text[1..]),
                _ => format!("{zeros}{}", &**text),
            })
        }
        "ljust" | "rjust" | "center" => {
            let [width, fill] = args.unnamed(name, 1)?;
            let fill = match &fill {
                None => ' ',
                Some(fill) => {
                    let mut chars = string(fill, name)?.chars();
                    match (chars.next(), chars.next()) {
                        (Some(only), None) => only,
                        _ => return Err(Error::new("a fill is one character")),
                    }
                }
            };
            same_kind(&justify(text, name, width, fill)?)
        }
        "expandtabs" => {
            let [size] = args.bind(name, ["tabsize"], 0)?;
            let size = size.as_ref().map_or(Ok(8), index)?.clamp(0, 1000) as usize;
            same_kind(&expand_tabs(text, size))
        }
        "partition" | "rpartition" => partition(text, name == "rpartition", args),
        "removeprefix" | "removesuffix" => {
            let [affix] = args.unnamed(name, 1)?;
            let affix = fit(text.markup, &affix.unwrap_or(Value::None), name)?;
            same_kind(match name {
                "removeprefix" => text.strip_prefix(&affix).unwrap_or(text),
                _ => text.strip_suffix(&affix).unwrap_or(text),
            })
        }
        _ => {
            if matches!(name, "escape" | "unescape" | "striptags") {
                return Err(Error::new(format!("the method {name:?} is not supported")));
            }
            args.none(name)?;
            Ok(Value::Bool(is(text, name)))
        }
    }
}

fn is(text: &str, name: &str) -> bool {
    let all = |test: &dyn Fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    match name {
        "isalpha" => all(&|c| LETTER.has(c)),
        "isalnum" => all(&|c| LETTER.has(c) || NUMERIC.has(c)),
        "isdecimal" => all(&|c| DECIMAL.has(c)),
        "isdigit" => all(&|c| DIGIT.has(c)),
        "isnumeric" => all(&|c| NUMERIC.has(c)),
        "isspace" => all(&is_python_space),
        "isascii" => text.is_ascii(),
        "isprintable" => !text.chars().any(|c| UNPRINTABLE.has(c)),
        "islower" => is_all_case(text, false),
        "isupper" => is_all_case(text, true),
        _ => is_title(text),
    }
}

fn missing(text: &str, width: &Option<Value>) -> Result<usize> {
    let width = index(width.as_ref().unwrap_or(&Value::None))?;
    if width > WIDTH_MAX {
        return Err(Error::new(format!("a text of {width} characters is too long")));
    }
    Ok((width.max(0) as usize).saturating_sub(text.chars().count()))
}

pub fn justify(text: &str, name: &str, width: Option<Value>, fill: char) -> Result<String> {
    let missing = missing(text, &width)?;
    let total = text.chars().count() + missing;
    let (left, right) = match name {
        "ljust" => (0, missing),
        "rjust" => (missing, 0),
        _ => {
            let left = missing / 2 + (missing & total & 1);
            (left, missing - left)
        }
    };
    let side = |count: usize| std::iter::repeat_n(fill, count).collect::<String>();
    Ok(side(left) + text + &side(right))
}

fn expand_tabs(text: &str, size: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for c in text.chars() {
        match c {
            '\t' if size > 0 => {
                let blanks = size - column % size;
                out.extend(std::iter::repeat_n(' ', blanks));
                column += blanks;
            }
            '\t' => {}
            c => {
                out.push(c);
                column = if c == '\n' || c == '\r' { 0 } else { column + 1 };
            }
        }
    }
    out
}

fn split(text: &PyStr, from_right: bool, args: CallArgs) -> Result<Value> {
    let [separator, most] = args.bind("split", ["sep", "maxsplit"], 0)?;
    let most = most.as_ref().map_or(Ok(-1), index)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX - 1);
    let separator = separator.filter(|separator| !matches!(separator, Value::None));
    let mut parts: Vec<&str> = Vec::new();
    match &separator {
        Some(separator) => {
            let separator = string(separator, "split")?;
            if separator.is_empty() {
                return Err(Error::new("the separator of a split is empty"));
            }
            match from_right {
                true => {
                    parts.extend(text.rsplitn(most + 1, separator));
                    parts.reverse();
                }
                false => parts.extend(text.splitn(most + 1, separator)),
            }
        }
        None if from_right => {
            let mut rest = text.trim_end_matches(is_python_space);
            while !rest.is_empty() && parts.len() < most {
                let space = rest.char_indices().rev().find(|(_, c)| is_python_space(*c));
                let begin = space.map_or(0, |(at, c)| at + c.len_utf8());
                parts.push(&rest[begin..]);
                rest = rest[..begin].trim_end_matches(is_python_space);
            }
            parts.extend((!rest.is_empty()).then_some(rest));
            parts.reverse();
        }
        None => {
            let mut rest = text.trim_start_matches(is_python_space);
            while !rest.is_empty() && parts.len() < most {
                let end = rest.find(is_python_space).unwrap_or(rest.len());
                parts.push(&rest[..end]);
                rest = rest[end..].trim_start_matches(is_python_space);
            }
            parts.extend((!rest.is_empty()).then_some(rest));
        }
    }
    let items = parts.into_iter().map(|part| Value::text(part.to_string(), text.markup));
    Ok(Value::list(items.collect()))
}

fn join(separator: &PyStr, items: &Value) -> Result<Value> {
    let mut out = String::new();
    for (i, item) in items.items()?.iter().enumerate() {
        if i > 0 {
            check_room(&out, separator)?;
            out.push_str(separator);
        }
        match separator.markup {
            // Markup escapes whatever it is given.
            true if item.as_str().is_none() => out.push_str(&escape(&super::print::to_str(item)?)),
            _ => out.push_str(&fit(separator.markup, item, "join")?),
        }
    }
    Ok(Value::text(out, separator.markup))
}

fn replace(text: &PyStr, args: CallArgs) -> Result<Value> {
    let [old, new, count] = args.bind("replace", [" ", " ", "count"], 2)?;
    let old = string(old.as_ref().unwrap_or(&Value::None), "replace")?.to_string();
    let new = fit(text.markup, &new.unwrap_or(Value::None), "replace")?;
    let count = count.as_ref().map_or(Ok(-1), index)?;
    let result = replace_text(text, &old, &new, count)?;
    Ok(Value::text(result, text.markup))
}

/// `text.replace(old, new, count)`; all of them where `count` is negative.
pub fn replace_text(text: &str, old: &str, new: &str, count: i128) -> Result<String> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let most = (text.len() / old.len().max(1) + 1).min(count);
    if !bounded::has_room(most.saturating_mul(new.len())) {
        let found = text.matches(old).take(count).count();
        if !bounded::has_room(found.saturating_mul(new.len())) {
            return Err(too_large());
        }
    }
    Ok(text.replacen(old, new, count))
}

fn too_large() -> Error {
    Error::of(Kind::Memory, "it makes a text of more memory than a prompt can need")
}

/// Before `separator` and an item are put behind `out`, which may move to twice its place.
pub fn check_room(out: &str, separator: &str) -> Result<()> {
    match bounded::has_room(2 * (out.len() + separator.len())) {
        true => Ok(()),
        false => Err(too_large()),
    }
}

/// The part of `text` between two places, as Python's search methods take them; `None`: the first
/// place lies behind the end.
fn window(text: &str, start: Option<Value>, stop: Option<Value>) -> Result<Option<(&str, usize)>> {
    let bound = |value: Option<Value>| match value {
        None | Some(Value::None) => Ok(None),
        Some(value) => index(&value).map(Some),
    };
    let (start, stop) = (bound(start)?, bound(stop)?);
    if start.is_none() && stop.is_none() {
        return Ok(Some((text, 0)));
    }
    let length = text.chars().count();
    if start.is_some_and(|start| start > length as i128) {
        return Ok(None);
    }
    let (start, stop, _) = slice_bounds(start, stop, None, length)?;
    if start > stop {
        return Ok(None);
    }
    let byte = |at: i128| text.char_indices().nth(at as usize).map_or(text.len(), |(byte, _)| byte);
    Ok(Some((&text[byte(start)..byte(stop)], start as usize)))
}

fn affix(text: &str, at_start: bool, args: CallArgs) -> Result<Value> {
    let name = if at_start { "startswith" } else { "endswith" };
    let [affix, start, stop] = args.unnamed(name, 1)?;
    let Some((part, _)) = window(text, start, stop)? else { return Ok(Value::Bool(false)) };
    let fits = |affix: &Value| -> Result<bool> {
        let affix = string(affix, name)?;
        Ok(if at_start { part.starts_with(affix) } else { part.ends_with(affix) })
    };
    match affix {
        Some(Value::Tuple(affixes)) => {
            for affix in affixes.iter() {
                if fits(affix)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        affix => Ok(Value::Bool(fits(&affix.unwrap_or(Value::None))?)),
    }
}

fn find(text: &str, name: &str, args: CallArgs) -> Result<Value> {
    let [wanted, start, stop] = args.unnamed(name, 1)?;
    let wanted = wanted.unwrap_or(Value::None);
    let wanted = string(&wanted, name)?;
    let found = match window(text, start, stop)? {
        None if name == "count" => return Ok(Value::Int(0)),
        None => None,
        Some((part, _)) if name == "count" => {
            return Ok(Value::int(match wanted.is_empty() {
                true => part.chars().count() + 1,
                false => part.matches(wanted).count(),
            }))
        }
        Some((part, before)) => {
            let byte = match name.starts_with('r') {
                true => part.rfind(wanted),
                false => part.find(wanted),
            };
            byte.map(|byte| before + part[..byte].chars().count())
        }
    };
    match found {
        Some(at) => Ok(Value::int(at)),
        None if name.ends_with("find") => Ok(Value::Int(-1)),
        None => Err(Error::new("the substring was not found")),
    }
}

fn partition(text: &PyStr, from_right: bool, args: CallArgs) -> Result<Value> {
    let [separator] = args.unnamed("partition", 1)?;
    let separator = separator.unwrap_or(Value::None);
    let separator = string(&separator, "partition")?;
    if separator.is_empty() {
        return Err(Error::new("the separator of a partition is empty"));
    }
    let found = match from_right {
        true => text.rsplit_once(separator),
        false => text.split_once(separator),
    };
    let parts = match found {
        Some((before, after)) => [before, separator, after],
        None if from_right => ["", "", text],
        None => [text, "", ""],
    };
    let items = parts.map(|part| Value::text(part.to_string(), text.markup));
    Ok(Value::tuple(items.into()))
}
