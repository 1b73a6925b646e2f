//! Operators, subscripts and attributes.

use std::rc::Rc;

use super::args::index;
use super::ast::{BinOp, CmpOp};
use super::error::{Error, Result};
use super::format::percent_format;
use super::methods;
use super::print::to_str;
use super::value::*;
use crate::bounded;

/// Beyond, a float doesn't hold each integer.
const EXACT_INT_MAX: u128 = 1 << 53;
/// Repeating is refused beyond so many bytes or items, before memory is asked for.
const REPEAT_MAX: usize = 1 << 28;

fn unfit(op: &str, a: &Value, b: &Value) -> Error {
    for value in [a, b] {
        if let Value::Undefined(undefined) = value {
            return Error::new(undefined.message());
        }
    }
    Error::new(format!("{op} has no meaning for a {} and a {}", a.type_name(), b.type_name()))
}

fn too_big() -> Error {
    Error::new("an integer has more than 128 bits")
}

pub fn binary(op: BinOp, a: &Value, b: &Value) -> Result<Value> {
    if let (Some(x), Some(y)) = (number(a), number(b)) {
        return match (x, y) {
            (Number::Int(x), Number::Int(y)) => int_op(op, x, y),
            (x, y) => float_op(op, to_float(x)?, to_float(y)?),
        };
    }
    match (op, a, b) {
        (BinOp::Add, Value::Str(x), Value::Str(y)) => Ok(add_strings(x, y)),
        (BinOp::Add, Value::List(x), Value::List(y)) => {
            Ok(Value::list(x.iter().chain(y.iter()).cloned().collect()))
        }
        (BinOp::Add, Value::Tuple(x), Value::Tuple(y)) => {
            Ok(Value::tuple(x.iter().chain(y.iter()).cloned().collect()))
        }
        (BinOp::Mul, x, count) if is_sequence(x) && count.as_int().is_some() => repeat(x, count),
        (BinOp::Mul, count, x) if is_sequence(x) && count.as_int().is_some() => repeat(x, count),
        (BinOp::Mod, Value::Str(text), args) => percent_format(text, args),
        (BinOp::Sub, Value::View(_, ViewKind::Keys | ViewKind::Items), _) => {
            Err(Error::unsupported("the difference of a dict's keys or items"))
        }
        _ => Err(unfit(
            match op {
                BinOp::Add => "+",
                BinOp::Sub => "-",
                BinOp::Mul => "*",
                BinOp::Div => "/",
                BinOp::FloorDiv => "//",
                BinOp::Mod => "%",
                BinOp::Pow => "**",
            },
            a,
            b,
        )),
    }
}

fn is_sequence(value: &Value) -> bool {
    matches!(value, Value::Str(_) | Value::List(_) | Value::Tuple(_))
}

fn add_strings(a: &PyStr, b: &PyStr) -> Value {
    let markup = a.markup || b.markup;
    let part = |text: &PyStr| match markup && !text.markup {
        true => escape(text),
        false => text.to_string(),
    };
    Value::text(part(a) + &part(b), markup)
}

/// `markupsafe.escape`
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('>', "&gt;")
        .replace('<', "&lt;")
        .replace('\'', "&#39;")
        .replace('"', "&#34;")
}

fn repeat(value: &Value, count: &Value) -> Result<Value> {
    let Ok(count) = usize::try_from(index(count)?.max(0)) else {
        return Err(Error::new("a repetition is too large"));
    };
    let check = |size: usize| match size.checked_mul(count) {
        Some(total) if total <= REPEAT_MAX && bounded::has_room(total) => Ok(()),
        _ => Err(Error::new("a repetition is too large")),
    };
    let items = |items: &Rc<Vec<Value>>| {
        check(items.len() * std::mem::size_of::<Value>())?;
        Ok(items.iter().cloned().cycle().take(items.len() * count).collect::<Vec<_>>())
    };
    match value {
        Value::Str(text) => {
            check(text.len())?;
            Ok(Value::text(text.repeat(count), text.markup))
        }
        Value::List(list) => Ok(Value::list(items(list)?)),
        Value::Tuple(tuple) => Ok(Value::tuple(items(tuple)?)),
        other => Err(unfit("*", other, &Value::None)),
    }
}

fn to_float(number: Number) -> Result<f64> {
    Ok(match number {
        Number::Int(number) => number as f64,
        Number::Float(number) => number,
    })
}

fn int_op(op: BinOp, a: i128, b: i128) -> Result<Value> {
    let by_zero = || Error::new("division by zero");
    let result = match op {
        BinOp::Add => a.checked_add(b),
        BinOp::Sub => a.checked_sub(b),
        BinOp::Mul => a.checked_mul(b),
        BinOp::Div | BinOp::FloorDiv | BinOp::Mod if b == 0 => return Err(by_zero()),
        BinOp::Div => {
            return Ok(Value::Float(divide(a, b)));
        }
        BinOp::FloorDiv => {
            a.checked_div_euclid(b).and_then(|q| match b < 0 && a.rem_euclid(b) != 0 {
                true => q.checked_sub(1),
                false => Some(q),
            })
        }
        BinOp::Mod => a.checked_rem_euclid(b).map(|r| if b < 0 && r != 0 { r + b } else { r }),
        BinOp::Pow if b < 0 && a == 0 => return Err(by_zero()),
        BinOp::Pow if b < 0 => return Ok(Value::Float((a as f64).powf(b as f64))),
        BinOp::Pow => match u32::try_from(b) {
            Ok(b) => a.checked_pow(b),
            Err(_) if a == 0 || a == 1 => Some(a),
            Err(_) if a == -1 => Some(if b % 2 == 0 { 1 } else { -1 }),
            Err(_) => None,
        },
    };
    result.map(Value::Int).ok_or_else(too_big)
}

/// `a / b`, rounded once.
fn divide(a: i128, b: i128) -> f64 {
    let (up, down) = (a.unsigned_abs(), b.unsigned_abs());
    if up <= EXACT_INT_MAX && down <= EXACT_INT_MAX {
        return a as f64 / b as f64;
    }
    let (mut quotient, mut rest, mut exponent) = (up / down, up % down, 0);
    // Enough bits for a float, and one that says whether more follow.
    while quotient < 1 << 60 && rest != 0 {
        rest *= 2;
        quotient = quotient * 2 + u128::from(rest >= down);
        rest %= down;
        exponent -= 1;
    }
    let size = (quotient | u128::from(rest != 0)) as f64 * 2f64.powi(exponent);
    if (a < 0) != (b < 0) {
        -size
    } else {
        size
    }
}

/// `a % b` of Python, whose sign is that of `b`.
fn float_mod(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest == 0.0 {
        return 0.0f64.copysign(b);
    }
    if (rest < 0.0) != (b < 0.0) {
        rest + b
    } else {
        rest
    }
}

fn float_floor_div(a: f64, b: f64) -> f64 {
    let rest = a % b;
    let mut quotient = (a - rest) / b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return 0.0f64.copysign(a / b);
    }
    let floor = quotient.floor();
    if quotient - floor > 0.5 {
        floor + 1.0
    } else {
        floor
    }
}

fn float_op(op: BinOp, a: f64, b: f64) -> Result<Value> {
    let number = match op {
        BinOp::Add => a + b,
        BinOp::Sub => a - b,
        BinOp::Mul => a * b,
        _ if b == 0.0 && op != BinOp::Pow => return Err(Error::new("division by zero")),
        BinOp::Div => a / b,
        BinOp::FloorDiv => float_floor_div(a, b),
        BinOp::Mod => float_mod(a, b),
        BinOp::Pow if a == 0.0 && b < 0.0 => return Err(Error::new("division by zero")),
        BinOp::Pow => {
            let power = a.powf(b);
            if power.is_nan() && !a.is_nan() && !b.is_nan() {
                return Err(Error::unsupported("a power that is a complex number"));
            }
            if power.is_infinite() && a.is_finite() && b.is_finite() {
                return Err(Error::new("a power is too large for a float"));
            }
            power
        }
    };
    Ok(Value::Float(number))
}

pub fn unary(sign: char, value: &Value) -> Result<Value> {
    match (sign, number(value)) {
        ('-', Some(Number::Int(number))) => {
            number.checked_neg().map(Value::Int).ok_or_else(too_big)
        }
        ('-', Some(Number::Float(number))) => Ok(Value::Float(-number)),
        (_, Some(Number::Int(number))) => Ok(Value::Int(number)),
        (_, Some(Number::Float(number))) => Ok(Value::Float(number)),
        _ => Err(unfit("a sign", value, value)),
    }
}

pub fn compare_op(op: CmpOp, a: &Value, b: &Value) -> Result<bool> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    Ok(match op {
        CmpOp::Eq => equal(a, b),
        CmpOp::Ne => !equal(a, b),
        CmpOp::In => contains(b, a)?,
        CmpOp::NotIn => !contains(b, a)?,
        CmpOp::Lt => compare_any(a, b)? == Some(Less),
        CmpOp::Le => matches!(compare_any(a, b)?, Some(Less | Equal)),
        CmpOp::Gt => compare_any(a, b)? == Some(Greater),
        CmpOp::Ge => matches!(compare_any(a, b)?, Some(Greater | Equal)),
    })
}

/// Keys and items of dicts are ordered as sets; the rest by `compare`.
fn compare_any(a: &Value, b: &Value) -> Result<Option<std::cmp::Ordering>> {
    if let (Value::View(_, ViewKind::Keys | ViewKind::Items), Value::View(..)) = (a, b) {
        return Err(Error::new("keys of dicts are not compared here"));
    }
    compare(a, b)
}

/// `item in container`
pub fn contains(container: &Value, item: &Value) -> Result<bool> {
    let any = |items: &[Value]| items.iter().any(|one| same(one, item) || equal(one, item));
    match container {
        Value::Str(text) => match item {
            Value::Str(part) => Ok(text.contains(&**part)),
            other => {
                Err(Error::new(format!("a string holds no value of type {}", other.type_name())))
            }
        },
        Value::List(items) | Value::Tuple(items) => Ok(any(items)),
        Value::Dict(dict) | Value::View(dict, ViewKind::Keys) => {
            Ok(dict.contains_key(&item.clone().into_key()?))
        }
        Value::View(dict, ViewKind::Values) => Ok(dict.values().any(|one| equal(one, item))),
        Value::View(dict, ViewKind::Items) => match item {
            Value::Tuple(pair) if pair.len() == 2 => {
                let found = dict.get(&pair[0].clone().into_key()?);
                Ok(found.is_some_and(|value| equal(value, &pair[1])))
            }
            _ => Ok(false),
        },
        Value::Range(range) => Ok((0..range.len()).any(|i| equal(&range.at(i), item))),
        Value::Iter(iter) => {
            let mut iter = iter.borrow_mut();
            while let Some(one) = iter.next()? {
                if same(&one, item) || equal(&one, item) {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        other => Ok(any(&other.items()?)),
    }
}

/// Where `index` is in a sequence of `length`, counted from its end when it is negative.
pub fn place(index: i128, length: usize) -> Option<usize> {
    let at = if index < 0 { index + length as i128 } else { index };
    usize::try_from(at).ok().filter(|at| *at < length)
}

/// `object[key]`; `None` where Python raises a TypeError or a LookupError.
fn item(object: &Value, key: &Value) -> Result<Option<Value>> {
    let at = |length: usize| key.as_int().and_then(|index| place(index, length));
    Ok(match object {
        Value::Undefined(undefined) => return Err(Error::new(undefined.message())),
        Value::Dict(dict) if key.is_hashable() => match key {
            Value::Str(name) => get_str(dict, name).cloned(),
            _ => dict.get(&Key(key.clone())).cloned(),
        },
        Value::List(items) | Value::Tuple(items) => at(items.len()).map(|at| items[at].clone()),
        Value::Str(text) => key.as_int().and_then(|index| {
            let at = match index {
                0.. => usize::try_from(index).ok()?,
                _ => place(index, text.chars().count())?,
            };
            let c = text.chars().nth(at)?;
            Some(Value::text(c.to_string(), text.markup))
        }),
        Value::Range(range) => at(range.len()).map(|at| range.at(at)),
        _ => None,
    })
}

/// `object[key]` of Jinja: the item, else the attribute.
pub fn getitem(object: &Value, key: &Value) -> Result<Value> {
    if let Some(found) = item(object, key)? {
        return Ok(found);
    }
    if let Value::Str(name) = key {
        if let Some(found) = attribute(object, name)? {
            return Ok(found);
        }
        return Ok(Value::missing(name.text.clone(), Why::Attribute));
    }
    Ok(Value::missing(to_str(key).unwrap_or_default(), Why::Attribute))
}

/// `object.name` of Jinja: the attribute, else the item.
pub fn getattr(object: &Value, name: &std::sync::Arc<str>) -> Result<Value> {
    if let Some(found) = attribute(object, name)? {
        return Ok(found);
    }
    if let Value::Dict(dict) = object {
        if let Some(found) = get_str(dict, name) {
            return Ok(found.clone());
        }
    }
    Ok(Value::missing(name.clone(), Why::Attribute))
}

/// `getattr(object, name)` of Python under the sandbox's rules.
pub fn attribute(object: &Value, name: &str) -> Result<Option<Value>> {
    if let Value::Undefined(undefined) = object {
        return match name {
            "__class__" => Ok(Some(Value::missing(name, Why::Unsafe))),
            _ => Err(Error::new(undefined.message())),
        };
    }
    if let Value::Namespace(names) = object {
        return Ok(get_str(&names.borrow(), name).cloned());
    }
    if methods::is_unsafe(object, name) {
        return Ok(Some(Value::missing(name, Why::Unsafe)));
    }
    if let Some(found) = methods::property(object, name)? {
        return Ok(Some(found));
    }
    Ok(methods::method_name(object, name)
        .map(|name| Value::Method(Rc::new((object.clone(), name)))))
}

/// The bounds of a slice, as `slice.indices` of Python gives them.
pub fn slice_bounds(
    start: Option<i128>,
    stop: Option<i128>,
    step: Option<i128>,
    length: usize,
) -> Result<(i128, i128, i128)> {
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(Error::new("the step of a slice is 0"));
    }
    let length = length as i128;
    let (low, high) = if step < 0 { (-1, length - 1) } else { (0, length) };
    let clamp = |at: i128| if at < 0 { (at.saturating_add(length)).max(low) } else { at.min(high) };
    let (first, last) = if step < 0 { (high, low) } else { (low, high) };
    Ok((start.map_or(first, clamp), stop.map_or(last, clamp), step))
}

fn places((start, stop, step): (i128, i128, i128)) -> impl Iterator<Item = usize> {
    let mut at = start;
    std::iter::from_fn(move || {
        let inside = if step > 0 { at < stop } else { at > stop };
        let here = at;
        at = at.saturating_add(step);
        inside.then_some(here as usize)
    })
}

/// `object[start:stop:step]`
pub fn slice(object: &Value, parts: [Option<Value>; 3]) -> Result<Value> {
    let mut bounds = [None; 3];
    let mut is_whole = true;
    for (bound, part) in bounds.iter_mut().zip(parts) {
        match part {
            None | Some(Value::None) => {}
            Some(part) => match part.as_int() {
                Some(number) => *bound = Some(number),
                None => is_whole = false,
            },
        }
    }
    let length = match object {
        Value::Undefined(undefined) => return Err(Error::new(undefined.message())),
        Value::Str(_) | Value::List(_) | Value::Tuple(_) | Value::Range(_) if is_whole => {
            object.length().unwrap_or(0)
        }
        // Jinja's code for a slice is Python's, so its errors are too.
        other => {
            return Err(Error::new(format!("a {} can't be sliced so", other.type_name())));
        }
    };
    let bounds = slice_bounds(bounds[0], bounds[1], bounds[2], length)?;
    Ok(match object {
        Value::Str(text) => {
            let part = match bounds {
                (start, stop, 1) => {
                    let count = (stop - start).max(0) as usize;
                    text.chars().skip(start as usize).take(count).collect::<String>()
                }
                _ => {
                    let chars: Vec<char> = text.chars().collect();
                    places(bounds).map(|at| chars[at]).collect()
                }
            };
            Value::text(part, text.markup)
        }
        Value::Tuple(items) => Value::tuple(places(bounds).map(|at| items[at].clone()).collect()),
        Value::Range(range) => {
            let scale = |at: i128| (range.start as i128 + at * range.step as i128) as i64;
            let step = (range.step as i128 * bounds.2) as i64;
            Value::Range(Range { start: scale(bounds.0), stop: scale(bounds.1), step })
        }
        Value::List(items) => Value::list(places(bounds).map(|at| items[at].clone()).collect()),
        _ => Value::None,
    })
}
