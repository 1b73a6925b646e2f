//! The global functions of a template.

use std::cell::RefCell;
use std::rc::Rc;

use super::args::{index, CallArgs};
use super::error::{Error, Kind, Result};
use super::eval::Interpreter;
use super::print::to_str;
use super::value::*;
use crate::strftime::strftime;

/// The sandbox's bound on `range`.
const RANGE_MAX: usize = 100_000;

pub fn global(name: &str) -> Option<Value> {
    let names =
        ["range", "dict", "cycler", "joiner", "namespace", "raise_exception", "strftime_now"];
    names.into_iter().find(|known| *known == name).map(Value::Function)
}

pub fn call(interpreter: &mut Interpreter, name: &str, args: CallArgs) -> Result<Value> {
    match name {
        "range" => range(args),
        "dict" => Ok(Value::dict(dict("dict", args)?)),
        "namespace" => {
            let names = dict("namespace", args)?;
            for key in names.keys() {
                if let Value::Str(name) = &key.0 {
                    check_namespace_name(name)?;
                }
            }
            let names = Rc::new(RefCell::new(names));
            interpreter.namespaces.push(names.clone());
            Ok(Value::Namespace(names))
        }
        "cycler" => {
            if !args.named.is_empty() || args.positional.is_empty() {
                return Err(Error::new("cycler needs items, none of them named"));
            }
            Ok(Value::Cycler(Rc::new((args.positional, RefCell::new(0)))))
        }
        "joiner" => {
            let [separator] = args.bind(name, ["sep"], 0)?;
            let separator = separator.unwrap_or_else(|| Value::from(", "));
            Ok(Value::Joiner(Rc::new((separator, RefCell::new(false)))))
        }
        "raise_exception" => {
            let [message] = args.bind(name, ["message"], 1)?;
            Err(Error::of(Kind::Raised, to_str(&message.unwrap_or(Value::None))?))
        }
        _ => {
            let [format] = args.bind(name, ["format"], 1)?;
            let Some(Value::Str(format)) = &format else {
                return Err(Error::new("strftime_now needs a string"));
            };
            match interpreter.limits.local_unix_s {
                Some(now) => strftime(now, format).map(Value::from),
                None => Err(Error::new("the template asks for the date and the caller gave none")),
            }
        }
    }
}

/// `transformers` keeps names with an underscore in front out of namespaces.
pub fn check_namespace_name(name: &str) -> Result<()> {
    match name.starts_with('_') {
        true => Err(Error::new(format!("a namespace has no place for {name:?}"))),
        false => Ok(()),
    }
}

fn range(args: CallArgs) -> Result<Value> {
    let [first, second, step] = args.unnamed("range", 1)?;
    let number = |value: &Value| -> Result<i64> {
        i64::try_from(index(value)?).map_err(|_| Error::new("a range is too long"))
    };
    let first = number(&first.unwrap_or(Value::None))?;
    let (start, stop) = match second {
        Some(second) => (first, number(&second)?),
        None => (0, first),
    };
    let step = step.as_ref().map_or(Ok(1), number)?;
    if step == 0 {
        return Err(Error::new("the step of a range is 0"));
    }
    let range = Range { start, stop, step };
    if range.len() > RANGE_MAX {
        return Err(Error::new(format!("a range has more than {RANGE_MAX} numbers")));
    }
    Ok(Value::Range(range))
}

/// `dict(…)` of Python.
fn dict(what: &str, args: CallArgs) -> Result<Dict> {
    if args.positional.len() > 1 {
        return Err(Error::new(format!("{what} takes one value beside named ones")));
    }
    let mut out = match args.positional.first() {
        None => Dict::new(),
        Some(Value::Dict(dict)) => dict.as_ref().clone(),
        Some(other) => {
            let mut out = Dict::new();
            for pair in other.items()? {
                match &pair.items()?[..] {
                    [key, value] => out.insert(key.clone().into_key()?, value.clone()),
                    _ => return Err(Error::new(format!("{what} takes pairs"))),
                };
            }
            out
        }
    };
    for (name, value) in args.named {
        out.insert(Key(Value::from(name)), value);
    }
    Ok(out)
}
