//! Jinja's filters for many values, and its tests.

use super::args::{index, string, CallArgs};
use super::ast::{BinOp, CmpOp};
use super::error::{Error, Result};
use super::filters;
use super::known;
use super::ops::{binary, compare_op, getitem};
use super::print::to_str;
use super::str_methods::check_room;
use super::value::*;
use crate::python_text::is_all_case;

/// An attribute as filters name it: `"a.b.0"`, or a number.
struct Path(Vec<Value>);

impl Path {
    fn of(attribute: &Value) -> Result<Path> {
        Ok(Path(match attribute {
            Value::None => Vec::new(),
            Value::Str(text) => Path::parts(text)?,
            other => vec![other.clone()],
        }))
    }

    fn parts(text: &str) -> Result<Vec<Value>> {
        let part = |part: &str| {
            let is_number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            match part.parse::<i128>() {
                Ok(number) if is_number => Value::Int(number),
                _ => Value::from(part),
            }
        };
        Ok(text.split('.').map(part).collect())
    }

    fn get(&self, item: &Value, default: Option<&Value>) -> Result<Value> {
        let mut item = item.clone();
        for part in &self.0 {
            item = getitem(&item, part)?;
            if let (true, Some(default)) = (item.is_undefined(), default) {
                item = default.clone();
            }
        }
        Ok(item)
    }
}

fn given(value: Option<Value>) -> Option<Value> {
    value.filter(|value| !matches!(value, Value::None))
}

fn is_true(value: Option<Value>) -> bool {
    value.is_some_and(|value| value.is_true())
}

/// Strings in small letters, for what doesn't tell large from small.
fn folded(value: Value, case_sensitive: bool) -> Value {
    match value {
        Value::Str(text) if !case_sensitive => Value::text(text.to_lowercase(), text.markup),
        other => other,
    }
}

pub fn apply(name: &str, value: Value, args: CallArgs) -> Result<Value> {
    match name {
        "first" => {
            args.none(name)?;
            let first = match &value {
                Value::List(items) | Value::Tuple(items) => items.first().cloned(),
                other => other.iter()?.borrow_mut().next()?,
            };
            Ok(first.unwrap_or_else(|| Value::hint("there is no first item in an empty sequence")))
        }
        "last" => {
            args.none(name)?;
            let last = match &value {
                Value::List(items) | Value::Tuple(items) => items.last().cloned(),
                Value::Str(_)
                | Value::Dict(_)
                | Value::Range(_)
                | Value::Undefined(_)
                | Value::View(..) => value.items()?.pop(),
                other => return Err(not_reversible(other)),
            };
            Ok(last.unwrap_or_else(|| Value::hint("there is no last item in an empty sequence")))
        }
        "list" => {
            args.none(name)?;
            Ok(Value::list(value.items()?))
        }
        "items" => {
            args.none(name)?;
            match &value {
                Value::Dict(dict) => Ok(Value::generator(pairs(dict), None)),
                Value::Undefined(_) => Ok(Value::generator(Vec::new(), None)),
                other => Ok(Value::generator(
                    Vec::new(),
                    Some(Error::new(format!("a {} has no pairs", other.type_name()))),
                )),
            }
        }
        "reverse" => {
            args.none(name)?;
            match &value {
                Value::Str(text) => {
                    Ok(Value::text(text.chars().rev().collect::<String>(), text.markup))
                }
                Value::Iter(_) => {
                    let mut items = value.items()?;
                    items.reverse();
                    Ok(Value::list(items))
                }
                other => {
                    let mut items = other.items()?;
                    items.reverse();
                    Ok(Value::iterator(items, None, "reversed"))
                }
            }
        }
        "join" => join(value, args),
        "dictsort" => dict_sort(value, args),
        "sort" => sort(value, args),
        "unique" => unique(value, args),
        "min" | "max" => extreme(name, value, args),
        "sum" => {
            let [attribute, start] = args.bind(name, ["attribute", "start"], 0)?;
            let path = given(attribute).map(|attribute| Path::of(&attribute)).transpose()?;
            let mut total = start.unwrap_or(Value::Int(0));
            if total.as_str().is_some() {
                return Err(Error::new("sum doesn't add strings"));
            }
            for item in value.items()? {
                let item = match &path {
                    Some(path) => path.get(&item, None)?,
                    None => item,
                };
                total = binary(BinOp::Add, &total, &item)?;
            }
            Ok(total)
        }
        "groupby" => group_by(value, args),
        "batch" => batch(value, args),
        "slice" => slices(value, args),
        "map" => map(value, args),
        "select" => select(value, args, true, false),
        "reject" => select(value, args, false, false),
        "selectattr" => select(value, args, true, true),
        _ => select(value, args, false, true),
    }
}

fn not_reversible(value: &Value) -> Error {
    Error::new(format!("a {} can't be read from its end", value.type_name()))
}

fn join(value: Value, args: CallArgs) -> Result<Value> {
    let [separator, attribute] = args.bind("join", ["d", "attribute"], 0)?;
    let separator = to_str(&separator.unwrap_or_else(|| Value::from("")))?;
    let path = given(attribute).map(|attribute| Path::of(&attribute)).transpose()?;
    let mut out = String::new();
    for (i, item) in value.items()?.iter().enumerate() {
        if i > 0 {
            check_room(&out, &separator)?;
            out.push_str(&separator);
        }
        match &path {
            Some(path) => super::print::write_str(&path.get(item, None)?, &mut out)?,
            None => super::print::write_str(item, &mut out)?,
        }
    }
    Ok(out.into())
}

fn sorted(mut keyed: Vec<(Value, Value)>, reverse: bool) -> Result<Vec<Value>> {
    sort_by_key(&mut keyed, reverse)?;
    Ok(keyed.into_iter().map(|(_, item)| item).collect())
}

fn dict_sort(value: Value, args: CallArgs) -> Result<Value> {
    let names = ["case_sensitive", "by", "reverse"];
    let [case_sensitive, by, reverse] = args.bind("dictsort", names, 0)?;
    let by = by.unwrap_or_else(|| Value::from("key"));
    let at = match by.as_str() {
        Some("key") => 0,
        Some("value") => 1,
        _ => return Err(Error::new("dictsort sorts by \"key\" or by \"value\"")),
    };
    let Value::Dict(dict) = &value else {
        return Err(Error::new(format!("dictsort needs a dict, not a {}", value.type_name())));
    };
    let case_sensitive = is_true(case_sensitive);
    let keyed = pairs(dict).into_iter().map(|pair| {
        let key = match &pair {
            Value::Tuple(items) => items[at].clone(),
            other => other.clone(),
        };
        (folded(key, case_sensitive), pair)
    });
    Ok(Value::list(sorted(keyed.collect(), is_true(reverse))?))
}

fn sort(value: Value, args: CallArgs) -> Result<Value> {
    let names = ["reverse", "case_sensitive", "attribute"];
    let [reverse, case_sensitive, attribute] = args.bind("sort", names, 0)?;
    let case_sensitive = is_true(case_sensitive);
    let paths = match &given(attribute) {
        Some(Value::Str(text)) => {
            text.split(',').map(|part| Ok(Path(Path::parts(part)?))).collect::<Result<Vec<_>>>()?
        }
        Some(other) => vec![Path::of(other)?],
        None => vec![Path(Vec::new())],
    };
    let mut keyed = Vec::new();
    for item in value.items()? {
        let key = |path: &Path| Ok(folded(path.get(&item, None)?, case_sensitive));
        let keys = paths.iter().map(key).collect::<Result<Vec<_>>>()?;
        keyed.push((Value::list(keys), item));
    }
    Ok(Value::list(sorted(keyed, is_true(reverse))?))
}

fn unique(value: Value, args: CallArgs) -> Result<Value> {
    let [case_sensitive, attribute] = args.bind("unique", ["case_sensitive", "attribute"], 0)?;
    let path = Path::of(&attribute.unwrap_or(Value::None))?;
    let case_sensitive = is_true(case_sensitive);
    let mut seen = Dict::new();
    let mut out = Vec::new();
    for item in value.items()? {
        let key = path.get(&item, None).and_then(|key| folded(key, case_sensitive).into_key());
        match key {
            Ok(key) if seen.contains_key(&key) => {}
            Ok(key) => {
                seen.insert(key, Value::None);
                out.push(item);
            }
            Err(error) => return Ok(Value::generator(out, Some(error))),
        }
    }
    Ok(Value::generator(out, None))
}

fn extreme(name: &str, value: Value, args: CallArgs) -> Result<Value> {
    let [case_sensitive, attribute] = args.bind(name, ["case_sensitive", "attribute"], 0)?;
    let path = Path::of(&attribute.unwrap_or(Value::None))?;
    let case_sensitive = is_true(case_sensitive);
    let op = if name == "min" { CmpOp::Lt } else { CmpOp::Gt };
    let mut best: Option<(Value, Value)> = None;
    for item in value.items()? {
        let key = folded(path.get(&item, None)?, case_sensitive);
        let is_better = match &best {
            Some((known, _)) => compare_op(op, &key, known)?,
            None => true,
        };
        if is_better {
            best = Some((key, item));
        }
    }
    Ok(match best {
        Some((_, item)) => item,
        None => Value::hint("an empty sequence has neither a smallest nor a largest item"),
    })
}

fn group_by(value: Value, args: CallArgs) -> Result<Value> {
    let names = ["attribute", "default", "case_sensitive"];
    let [attribute, default, case_sensitive] = args.bind("groupby", names, 1)?;
    let path = Path::of(&attribute.unwrap_or(Value::None))?;
    let default = given(default);
    let case_sensitive = is_true(case_sensitive);
    let mut keyed = Vec::new();
    for item in value.items()? {
        keyed.push((folded(path.get(&item, default.as_ref())?, case_sensitive), item));
    }
    sort_by_key(&mut keyed, false)?;
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for (key, item) in keyed {
        match groups.last_mut() {
            Some((known, items)) if equal(known, &key) => items.push(item),
            _ => groups.push((key, vec![item])),
        }
    }
    let mut out = Vec::new();
    for (key, items) in groups {
        // The key of the first item, in its own letters.
        let shown = match case_sensitive {
            true => key,
            false => path.get(&items[0], default.as_ref())?,
        };
        out.push(Value::tuple(vec![shown, Value::list(items)]));
    }
    Ok(Value::list(out))
}

fn batch(value: Value, args: CallArgs) -> Result<Value> {
    let [count, fill] = args.bind("batch", ["linecount", "fill_with"], 1)?;
    let count = index(&count.unwrap_or(Value::None))?;
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for item in value.items()? {
        match rows.last_mut() {
            Some(row) if row.len() as i128 != count => row.push(item),
            // Python begins with an empty row, which is full when rows hold nothing.
            None if count == 0 => rows.extend([Vec::new(), vec![item]]),
            _ => rows.push(vec![item]),
        }
    }
    if let (Some(fill), Some(row)) = (given(fill), rows.last_mut()) {
        while (row.len() as i128) < count.min(1 << 20) {
            row.push(fill.clone());
        }
    }
    Ok(Value::generator(rows.into_iter().map(Value::list).collect(), None))
}

fn slices(value: Value, args: CallArgs) -> Result<Value> {
    let [count, fill] = args.bind("slice", ["slices", "fill_with"], 1)?;
    let count = index(&count.unwrap_or(Value::None))?;
    let items = value.items()?;
    if count <= 0 {
        return match count {
            0 => Ok(Value::generator(Vec::new(), Some(Error::new("division by zero")))),
            _ => Ok(Value::generator(Vec::new(), None)),
        };
    }
    let count = count.min(1 << 20) as usize;
    let (each, more) = (items.len() / count, items.len() % count);
    let fill = given(fill);
    let mut offset = 0;
    let mut out = Vec::new();
    for slice in 0..count {
        let start = offset + slice * each;
        if slice < more {
            offset += 1;
        }
        let mut part = items[start..offset + (slice + 1) * each].to_vec();
        if slice >= more {
            part.extend(fill.clone());
        }
        out.push(Value::list(part));
    }
    Ok(Value::generator(out, None))
}

/// What a generator gives: items up to the first error.
fn generate(value: Value, mut each: impl FnMut(Value) -> Result<Option<Value>>) -> Result<Value> {
    if !value.is_true() {
        return Ok(Value::generator(Vec::new(), None));
    }
    let mut out = Vec::new();
    let items = match value.iter() {
        Ok(items) => items,
        Err(error) => return Ok(Value::generator(out, Some(error))),
    };
    loop {
        let next = items.borrow_mut().next();
        match next.and_then(|item| item.map(&mut each).transpose()) {
            Ok(Some(item)) => out.extend(item),
            Ok(None) => return Ok(Value::generator(out, None)),
            Err(error) => return Ok(Value::generator(out, Some(error))),
        }
    }
}

fn map(value: Value, mut args: CallArgs) -> Result<Value> {
    if args.positional.is_empty() {
        if let Some(attribute) = args.take_named("attribute") {
            let default = args.take_named("default").and_then(|value| given(Some(value)));
            args.none("map")?;
            let path = Path::of(&attribute)?;
            return generate(value, |item| path.get(&item, default.as_ref()).map(Some));
        }
        let error = Error::new("map needs the name of a filter");
        return generate(value, |_| Err(error.clone()));
    }
    let name = args.positional.remove(0);
    let name = match &name {
        Value::Str(name) => name.clone(),
        other => return Err(Error::new(format!("a {} names no filter", other.type_name()))),
    };
    if known::filter(&name) == known::Known::Unsupported {
        return Err(Error::unsupported(format!("the filter {:?}", &*name)));
    }
    generate(value, |item| filters::apply(&name, item, again(&args)).map(Some))
}

fn again(args: &CallArgs) -> CallArgs {
    CallArgs { positional: args.positional.clone(), named: args.named.clone() }
}

fn select(value: Value, mut args: CallArgs, keep: bool, by_attribute: bool) -> Result<Value> {
    let mut path = Path(Vec::new());
    if by_attribute {
        if args.positional.is_empty() {
            let error = Error::new("selectattr needs the name of an attribute");
            return generate(value, |_| Err(error.clone()));
        }
        path = Path::of(&args.positional.remove(0))?;
    }
    let test = match args.positional.is_empty() {
        true => None,
        false => Some(args.positional.remove(0)),
    };
    generate(value, |item| {
        let tested = path.get(&item, None)?;
        let passed = match &test {
            None => tested.is_true(),
            Some(name) => apply_test(string(name, "select")?, &tested, again(&args))?,
        };
        Ok((passed == keep).then_some(item))
    })
}

/// `value is name(args)`
pub fn apply_test(name: &str, value: &Value, args: CallArgs) -> Result<bool> {
    let compared = match name {
        "==" | "eq" | "equalto" => Some(CmpOp::Eq),
        "!=" | "ne" => Some(CmpOp::Ne),
        ">" | "gt" | "greaterthan" => Some(CmpOp::Gt),
        ">=" | "ge" => Some(CmpOp::Ge),
        "<" | "lt" | "lessthan" => Some(CmpOp::Lt),
        "<=" | "le" => Some(CmpOp::Le),
        _ => None,
    };
    if let Some(op) = compared {
        let [other] = args.unnamed(name, 1)?;
        return compare_op(op, value, &other.unwrap_or(Value::None));
    }
    match name {
        "divisibleby" => {
            let [by] = args.bind(name, ["num"], 1)?;
            let rest = binary(BinOp::Mod, value, &by.unwrap_or(Value::None))?;
            return Ok(equal(&rest, &Value::Int(0)));
        }
        "in" => {
            let [container] = args.bind(name, ["seq"], 1)?;
            return compare_op(CmpOp::In, value, &container.unwrap_or(Value::None));
        }
        "sameas" => {
            let [other] = args.bind(name, ["other"], 1)?;
            return same_as(value, &other.unwrap_or(Value::None));
        }
        _ => args.none(name)?,
    }
    Ok(match name {
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => number(value).is_some(),
        "string" => value.as_str().is_some(),
        "mapping" => matches!(value, Value::Dict(_)),
        "sequence" => is_sequence(value),
        "iterable" => matches!(value, Value::Loop(_)) || value.iter().is_ok(),
        "callable" => is_callable(value),
        "escaped" => matches!(value, Value::Str(text) if text.markup),
        "odd" => equal(&binary(BinOp::Mod, value, &Value::Int(2))?, &Value::Int(1)),
        "even" => equal(&binary(BinOp::Mod, value, &Value::Int(2))?, &Value::Int(0)),
        "lower" => is_all_case(&to_str(value)?, false),
        "upper" => is_all_case(&to_str(value)?, true),
        "filter" => is_name(value)?.is_some_and(|name| known::filter(name) != known::Known::No),
        "test" => is_name(value)?.is_some_and(known::is_test),
        _ => return Err(Error::new(format!("there is no test {name:?}"))),
    })
}

fn is_name(value: &Value) -> Result<Option<&str>> {
    match value.is_hashable() {
        true => Ok(value.as_str()),
        false => Err(Error::new(format!("a {} names nothing", value.type_name()))),
    }
}

fn is_sequence(value: &Value) -> bool {
    matches!(
        value,
        Value::Undefined(_)
            | Value::Str(_)
            | Value::List(_)
            | Value::Tuple(_)
            | Value::Dict(_)
            | Value::Range(_)
    )
}

fn is_callable(value: &Value) -> bool {
    matches!(
        value,
        Value::Undefined(_)
            | Value::Macro(_)
            | Value::Method(_)
            | Value::Function(_)
            | Value::Loop(_)
            | Value::Joiner(_)
    )
}

/// `is` of Python, where it depends on the values alone.
fn same_as(a: &Value, b: &Value) -> Result<bool> {
    if same(a, b) {
        return Ok(true);
    }
    let is_small = |value: &Value| matches!(value, Value::Int(-5..=256));
    let unclear = match (a, b) {
        (Value::Int(x), Value::Int(y)) if is_small(a) => return Ok(x == y),
        (Value::Int(x), Value::Int(y)) => x == y,
        (Value::Float(x), Value::Float(y)) => x.to_bits() == y.to_bits(),
        (Value::Str(x), Value::Str(y)) => **x == **y,
        (Value::Tuple(x), Value::Tuple(y)) => x.len() == y.len(),
        (Value::Undefined(_), Value::Undefined(_)) => true,
        _ => false,
    };
    match unclear {
        false => Ok(false),
        true => Err(Error::new("whether two equal values are one object is up to Python")),
    }
}
