//! The variable `loop`.

use std::cell::RefCell;
use std::rc::Rc;

use super::args::CallArgs;
use super::error::{Error, Result};
use super::value::*;

type Shared = Rc<RefCell<LoopState>>;

/// The number of items, of which an iterator without a length is emptied into memory.
pub fn length(state: &Shared) -> Result<i128> {
    let mut state = state.borrow_mut();
    if let Some(length) = state.length {
        return Ok(length as i128);
    }
    if state.filter.is_some() {
        return Err(Error::unsupported("the length of a loop with a condition in this way"));
    }
    let items = state.items.borrow();
    if let Some(error) = &items.error {
        return Err(error.clone());
    }
    let length = items.items.len() as i128 + state.index0 + 1;
    drop(items);
    state.length = Some(length as usize);
    Ok(length)
}

pub fn attribute(state: &Shared, name: &str) -> Result<Option<Value>> {
    let index0 = state.borrow().index0;
    let next = || -> Result<Option<Value>> {
        let state = state.borrow();
        let items = state.items.borrow();
        match (items.items.front(), &items.error) {
            (None, Some(error)) => Err(error.clone()),
            (item, _) => Ok(item.cloned()),
        }
    };
    Ok(Some(match name {
        "index0" => Value::Int(index0),
        "index" => Value::Int(index0 + 1),
        "length" => Value::Int(length(state)?),
        "revindex0" => Value::Int(length(state)? - index0 - 1),
        "revindex" => Value::Int(length(state)? - index0),
        "first" => Value::Bool(index0 == 0),
        "last" => Value::Bool(next()?.is_none()),
        "depth0" => Value::Int(state.borrow().depth0),
        "depth" => Value::Int(state.borrow().depth0 + 1),
        "previtem" => match (&state.borrow().before, index0) {
            (Some(item), 1..) => item.clone(),
            _ => Value::hint("there is no previous item"),
        },
        "nextitem" => next()?.unwrap_or_else(|| Value::hint("there is no next item")),
        _ => return Ok(None),
    }))
}

pub fn method(state: &Shared, name: &str, args: CallArgs) -> Result<Value> {
    if !args.named.is_empty() {
        return Err(Error::new(format!("loop.{name} takes no named arguments")));
    }
    let items = args.positional;
    if name == "cycle" {
        if items.is_empty() {
            return Err(Error::new("loop.cycle has nothing to choose from"));
        }
        let at = state.borrow().index0.rem_euclid(items.len() as i128) as usize;
        return Ok(items[at].clone());
    }
    let mut state = state.borrow_mut();
    let is_new = match &state.last_changed {
        Some(last) => {
            last.len() != items.len()
                || !last.iter().zip(&items).all(|(a, b)| same(a, b) || equal(a, b))
        }
        None => true,
    };
    if is_new {
        state.last_changed = Some(items);
    }
    Ok(Value::Bool(is_new))
}
