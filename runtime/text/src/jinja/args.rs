//! Arguments of a call, matched with the names of parameters as Python matches them.

use super::error::{Error, Result};
use super::print::to_str;
use super::value::Value;

#[derive(Default)]
pub struct CallArgs {
    pub positional: Vec<Value>,
    pub named: Vec<(String, Value)>,
}

impl CallArgs {
    pub fn of(positional: Vec<Value>) -> CallArgs {
        CallArgs { positional, named: Vec::new() }
    }

    pub fn take_named(&mut self, name: &str) -> Option<Value> {
        let at = self.named.iter().position(|(known, _)| known == name)?;
        Some(self.named.remove(at).1)
    }

    /// The values of `names` in their order; names in front of `required` must have one.
    pub fn bind<const N: usize>(
        mut self,
        what: &str,
        names: [&str; N],
        required: usize,
    ) -> Result<[Option<Value>; N]> {
        if self.positional.len() > N {
            return Err(Error::new(format!("{what} takes at most {N} arguments")));
        }
        let mut given = std::mem::take(&mut self.positional).into_iter();
        let mut out = [const { None }; N];
        for (i, name) in names.iter().enumerate() {
            out[i] = given.next();
            // A name with a blank can't be given by its name.
            if let Some(value) = self.take_named(name) {
                if out[i].is_some() {
                    return Err(Error::new(format!("{what} got {name:?} twice")));
                }
                out[i] = Some(value);
            }
            if out[i].is_none() && i < required {
                return Err(Error::new(format!("{what} needs the argument {name:?}")));
            }
        }
        match self.named.first() {
            Some((name, _)) => Err(Error::new(format!("{what} knows no argument {name:?}"))),
            None => Ok(out),
        }
    }

    /// The same for functions whose parameters have no names.
    pub fn unnamed<const N: usize>(
        self,
        what: &str,
        required: usize,
    ) -> Result<[Option<Value>; N]> {
        if !self.named.is_empty() {
            return Err(Error::new(format!("{what} takes no named arguments")));
        }
        self.bind(what, [" "; N], required)
    }

    pub fn none(self, what: &str) -> Result<()> {
        self.unnamed::<0>(what, 0).map(|_| ())
    }
}

/// An integer argument, as Python's C functions take it.
pub fn index(value: &Value) -> Result<i128> {
    value.as_int().ok_or_else(|| match value {
        Value::Undefined(undefined) => Error::new(undefined.message()),
        other => Error::new(format!("a {} is not an integer", other.type_name())),
    })
}

pub fn string<'a>(value: &'a Value, what: &str) -> Result<&'a str> {
    value.as_str().ok_or_else(|| {
        Error::new(format!("{what} needs a string, not a value of type {}", value.type_name()))
    })
}

/// `soft_str(value)` of markupsafe.
pub fn soft_str(value: &Value) -> Result<super::value::PyStr> {
    match value {
        Value::Str(text) => Ok(text.clone()),
        other => Ok(super::value::PyStr { text: to_str(other)?.into(), markup: false }),
    }
}
