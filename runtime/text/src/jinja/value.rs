//! Values as a template sees them, with the identity, equality and order that Python gives them.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use indexmap::{Equivalent, IndexMap};

use super::ast::{ForNode, MacroNode};
use super::error::{Error, Result};

/// A scope's place in the interpreter's list.
pub type ScopeId = usize;

#[derive(Clone)]
pub enum Value {
    Undefined(Undefined),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(PyStr),
    List(Rc<Vec<Value>>),
    Tuple(Rc<Vec<Value>>),
    Dict(Rc<Dict>),
    Range(Range),
    View(Rc<Dict>, ViewKind),
    /// A generator or another iterator: what is taken out is gone.
    Iter(Rc<RefCell<Iter>>),
    Namespace(Rc<RefCell<Dict>>),
    Macro(Rc<MacroValue>),
    Method(Rc<(Value, &'static str)>),
    Function(&'static str),
    Loop(Rc<RefCell<LoopState>>),
    /// The items and the place of `cycler`.
    Cycler(Rc<(Vec<Value>, RefCell<usize>)>),
    /// The separator of `joiner`, and whether it was used.
    Joiner(Rc<(Value, RefCell<bool>)>),
}

/// A name or attribute without a value.
#[derive(Clone)]
pub struct Undefined {
    pub name: Arc<str>,
    pub why: Why,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Name,
    Attribute,
    /// The sandbox forbids it, such as `list.append`.
    Unsafe,
    Hint,
}

impl Undefined {
    pub fn message(&self) -> String {
        match self.why {
            Why::Name => format!("{:?} is undefined", self.name),
            Why::Attribute => format!("there is no attribute or element {:?}", self.name),
            Why::Unsafe => format!("the attribute {:?} may not be used in a template", self.name),
            Why::Hint => self.name.to_string(),
        }
    }
}

/// A string; `markup` is what the filters `safe` and `escape` give.
#[derive(Clone)]
pub struct PyStr {
    pub text: Arc<str>,
    pub markup: bool,
}

impl std::ops::Deref for PyStr {
    type Target = str;
    fn deref(&self) -> &str {
        &self.text
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub start: i64,
    pub stop: i64,
    pub step: i64,
}

impl Range {
    pub fn len(&self) -> usize {
        let (low, high) = match self.step > 0 {
            true => (self.start, self.stop),
            false => (self.stop, self.start),
        };
        if low >= high {
            return 0;
        }
        ((high as i128 - low as i128 - 1) / self.step.unsigned_abs() as i128 + 1) as usize
    }

    pub fn at(&self, index: usize) -> Value {
        Value::Int(self.start as i128 + index as i128 * self.step as i128)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ViewKind {
    Keys,
    Values,
    Items,
}

/// What is left of an iterator. The error, if there is one, comes behind the last item.
pub struct Iter {
    pub items: VecDeque<Value>,
    pub error: Option<Error>,
    /// A generator of Python, or an iterator over a list; it only shows in errors.
    pub what: &'static str,
}

impl Iter {
    pub fn next(&mut self) -> Result<Option<Value>> {
        match self.items.pop_front() {
            Some(item) => Ok(Some(item)),
            None => self.error.take().map_or(Ok(None), Err),
        }
    }
}

pub struct MacroValue {
    pub node: Arc<MacroNode>,
    /// Where the macro was defined.
    pub scope: ScopeId,
}

/// The variable `loop`.
pub struct LoopState {
    pub items: Rc<RefCell<Iter>>,
    /// Of the iterable, when it has one before it is walked.
    pub length: Option<usize>,
    pub index0: i128,
    pub before: Option<Value>,
    pub current: Option<Value>,
    pub last_changed: Option<Vec<Value>>,
    pub depth0: i128,
    /// A recursive loop's body and the scope around it.
    pub recurse: Option<(Arc<ForNode>, ScopeId)>,
    /// A loop's condition: where items come from that pass it, and the scope that it is read in.
    pub filter: Option<(Rc<RefCell<Iter>>, Arc<ForNode>, ScopeId)>,
}

#[derive(Clone)]
pub struct Key(pub Value);
pub type Dict = IndexMap<Key, Value>;

/// A string as it would be as a key.
pub struct StrKey<'a>(pub &'a str);

impl Hash for StrKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(1);
        self.0.hash(state);
    }
}

impl Equivalent<Key> for StrKey<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        matches!(&key.0, Value::Str(text) if **text == *self.0)
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            Value::Str(text) => StrKey(text).hash(state),
            Value::Bool(yes) => hash_int(i128::from(*yes), state),
            Value::Int(number) => hash_int(*number, state),
            Value::Float(number) => match float_as_int(*number) {
                Some(whole) => hash_int(whole, state),
                None => number.to_bits().hash(state),
            },
            Value::Tuple(items) => {
                for item in items.iter() {
                    Key(item.clone()).hash(state);
                }
            }
            _ => state.write_u8(0),
        }
    }
}

fn hash_int<H: Hasher>(number: i128, state: &mut H) {
    state.write_u8(2);
    number.hash(state);
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        same(&self.0, &other.0) || equal(&self.0, &other.0)
    }
}

impl Eq for Key {}

/// The whole number that a float is, if it is one that 128 bits hold.
pub fn float_as_int(number: f64) -> Option<i128> {
    (number.fract() == 0.0 && number.abs() < 1e38).then_some(number as i128)
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Str(PyStr { text: text.into(), markup: false })
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Str(PyStr { text: text.into(), markup: false })
    }
}

impl From<Arc<str>> for Value {
    fn from(text: Arc<str>) -> Value {
        Value::Str(PyStr { text, markup: false })
    }
}

impl From<bool> for Value {
    fn from(yes: bool) -> Value {
        Value::Bool(yes)
    }
}

impl Value {
    pub fn list(items: Vec<Value>) -> Value {
        Value::List(Rc::new(items))
    }

    pub fn tuple(items: Vec<Value>) -> Value {
        Value::Tuple(Rc::new(items))
    }

    pub fn dict(items: Dict) -> Value {
        Value::Dict(Rc::new(items))
    }

    pub fn int(number: usize) -> Value {
        Value::Int(number as i128)
    }

    pub fn text(text: String, markup: bool) -> Value {
        Value::Str(PyStr { text: text.into(), markup })
    }

    pub fn generator(items: Vec<Value>, error: Option<Error>) -> Value {
        Value::iterator(items, error, "generator")
    }

    pub fn iterator(items: Vec<Value>, error: Option<Error>, what: &'static str) -> Value {
        Value::Iter(Rc::new(RefCell::new(Iter { items: items.into(), error, what })))
    }

    pub fn missing(name: impl Into<Arc<str>>, why: Why) -> Value {
        Value::Undefined(Undefined { name: name.into(), why })
    }

    pub fn hint(text: &str) -> Value {
        Value::missing(text, Why::Hint)
    }

    pub fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined(_))
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// An integer of Python, which a bool is too.
    pub fn as_int(&self) -> Option<i128> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Bool(yes) => Some(i128::from(*yes)),
            _ => None,
        }
    }

    /// The name of the type in Python.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Str(text) if text.markup => "Markup",
            Value::Str(_) => "str",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
            Value::Range(_) => "range",
            Value::View(_, ViewKind::Keys) => "dict_keys",
            Value::View(_, ViewKind::Values) => "dict_values",
            Value::View(_, ViewKind::Items) => "dict_items",
            Value::Iter(iter) => iter.borrow().what,
            Value::Namespace(_) => "Namespace",
            Value::Macro(_) => "Macro",
            Value::Method(_) => "builtin_function_or_method",
            Value::Function(_) => "function",
            Value::Loop(_) => "LoopContext",
            Value::Cycler(_) => "Cycler",
            Value::Joiner(_) => "Joiner",
        }
    }

    pub fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(yes) => *yes,
            Value::Int(number) => *number != 0,
            Value::Float(number) => *number != 0.0,
            Value::Str(text) => !text.is_empty(),
            Value::List(items) | Value::Tuple(items) => !items.is_empty(),
            Value::Dict(dict) | Value::View(dict, _) => !dict.is_empty(),
            Value::Range(range) => range.len() > 0,
            Value::Loop(state) => state.borrow().length != Some(0),
            _ => true,
        }
    }

    /// `len(value)`, where Python has one.
    pub fn length(&self) -> Option<usize> {
        match self {
            Value::Undefined(_) => Some(0),
            Value::Str(text) => Some(text.chars().count()),
            Value::List(items) | Value::Tuple(items) => Some(items.len()),
            Value::Dict(dict) | Value::View(dict, _) => Some(dict.len()),
            Value::Range(range) => Some(range.len()),
            _ => None,
        }
    }

    pub fn is_hashable(&self) -> bool {
        match self {
            Value::List(_) | Value::Dict(_) | Value::View(_, ViewKind::Keys | ViewKind::Items) => {
                false
            }
            Value::Tuple(items) => items.iter().all(Value::is_hashable),
            _ => true,
        }
    }

    pub fn into_key(self) -> Result<Key> {
        if !self.is_hashable() {
            return Err(Error::new(format!("a {} can't be a key", self.type_name())));
        }
        Ok(Key(self))
    }

    /// The iterator over a value, as `iter()` gives it; an iterator gives itself.
    pub fn iter(&self) -> Result<Rc<RefCell<Iter>>> {
        let items: VecDeque<Value> = match self {
            Value::Iter(iter) => return Ok(iter.clone()),
            Value::Undefined(_) => VecDeque::new(),
            Value::Str(text) => {
                let mut bytes = [0; 4];
                text.chars().map(|c| Value::from(&*c.encode_utf8(&mut bytes))).collect()
            }
            Value::List(items) | Value::Tuple(items) => items.iter().cloned().collect(),
            Value::Dict(dict) | Value::View(dict, ViewKind::Keys) => {
                dict.keys().map(|key| key.0.clone()).collect()
            }
            Value::View(dict, ViewKind::Values) => dict.values().cloned().collect(),
            Value::View(dict, ViewKind::Items) => pairs(dict).into(),
            Value::Range(range) => (0..range.len()).map(|i| range.at(i)).collect(),
            other => {
                return Err(Error::new(format!("a {} can't be iterated over", other.type_name())))
            }
        };
        Ok(Rc::new(RefCell::new(Iter { items, error: None, what: "iterator" })))
    }

    /// All items; an iterator is empty afterwards.
    pub fn items(&self) -> Result<Vec<Value>> {
        match self {
            Value::List(items) | Value::Tuple(items) => Ok(items.as_ref().clone()),
            other => {
                let iter = other.iter()?;
                let mut iter = iter.borrow_mut();
                let items = std::mem::take(&mut iter.items);
                match iter.error.take() {
                    Some(error) => Err(error),
                    None => Ok(items.into()),
                }
            }
        }
    }
}

/// The items of a dict as tuples.
pub fn pairs(dict: &Dict) -> Vec<Value> {
    dict.iter().map(|(key, value)| Value::tuple(vec![key.0.clone(), value.clone()])).collect()
}

pub fn get_str<'a>(dict: &'a Dict, name: &str) -> Option<&'a Value> {
    dict.get(&StrKey(name))
}

/// Whether two values are one object, as far as that can be told for values without identity.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::None, Value::None) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => Rc::ptr_eq(a, b),
        (Value::Dict(a), Value::Dict(b)) => Rc::ptr_eq(a, b),
        (Value::Iter(a), Value::Iter(b)) => Rc::ptr_eq(a, b),
        (Value::Namespace(a), Value::Namespace(b)) => Rc::ptr_eq(a, b),
        (Value::Macro(a), Value::Macro(b)) => Rc::ptr_eq(a, b),
        (Value::Loop(a), Value::Loop(b)) => Rc::ptr_eq(a, b),
        (Value::Cycler(a), Value::Cycler(b)) => Rc::ptr_eq(a, b),
        (Value::Joiner(a), Value::Joiner(b)) => Rc::ptr_eq(a, b),
        (Value::Function(a), Value::Function(b)) => a == b,
        _ => false,
    }
}

/// `a == b` of Python.
pub fn equal(a: &Value, b: &Value) -> bool {
    let all = |a: &[Value], b: &[Value]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b) || equal(a, b))
    };
    match (a, b) {
        (Value::Undefined(_), Value::Undefined(_)) => true,
        (Value::Str(a), Value::Str(b)) => **a == **b,
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            Rc::ptr_eq(a, b) || all(a, b)
        }
        (Value::Dict(a), Value::Dict(b)) => {
            let has = |(key, value): (&Key, &Value)| {
                b.get(key).is_some_and(|other| same(value, other) || equal(value, other))
            };
            Rc::ptr_eq(a, b) || (a.len() == b.len() && a.iter().all(has))
        }
        (Value::Range(a), Value::Range(b)) => {
            a.len() == b.len()
                && (a.len() == 0 || a.start == b.start && (a.len() == 1 || a.step == b.step))
        }
        (Value::View(a, x), Value::View(b, y)) if *x != ViewKind::Values && x == y => {
            a.len() == b.len()
                && a.iter().all(|(key, value)| match x {
                    ViewKind::Keys => b.contains_key(key),
                    _ => b.get(key).is_some_and(|other| equal(value, other)),
                })
        }
        (Value::Method(a), Value::Method(b)) => same(&a.0, &b.0) && a.1 == b.1,
        _ => match (number(a), number(b)) {
            (Some(a), Some(b)) => compare_numbers(a, b) == Some(Ordering::Equal),
            _ => same(a, b),
        },
    }
}

#[derive(Clone, Copy)]
pub enum Number {
    Int(i128),
    Float(f64),
}

pub fn number(value: &Value) -> Option<Number> {
    match value {
        Value::Float(number) => Some(Number::Float(*number)),
        other => other.as_int().map(Number::Int),
    }
}

fn compare_numbers(a: Number, b: Number) -> Option<Ordering> {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
        (Number::Float(a), Number::Float(b)) => a.partial_cmp(&b),
        (Number::Int(a), Number::Float(b)) => compare_int_float(a, b),
        (Number::Float(a), Number::Int(b)) => compare_int_float(b, a).map(Ordering::reverse),
    }
}

/// Without rounding the integer, as Python compares them.
fn compare_int_float(a: i128, b: f64) -> Option<Ordering> {
    if b.is_nan() {
        return None;
    }
    if b.abs() >= 1e38 {
        return Some(if b > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    Some(a.cmp(&(b.trunc() as i128)).then_with(|| 0.0f64.total_cmp(&(b.fract() + 0.0))))
}

/// How `a` and `b` are ordered. `Ok(None)`: not at all, as a NaN; an error: by their types.
pub fn compare(a: &Value, b: &Value) -> Result<Option<Ordering>> {
    match (a, b) {
        (Value::Undefined(undefined), _) | (_, Value::Undefined(undefined)) => {
            Err(Error::new(undefined.message()))
        }
        (Value::Str(a), Value::Str(b)) => Ok(Some((**a).cmp(&**b))),
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            for (a, b) in a.iter().zip(b.iter()) {
                if !same(a, b) && !equal(a, b) {
                    return compare(a, b);
                }
            }
            Ok(Some(a.len().cmp(&b.len())))
        }
        _ => match (number(a), number(b)) {
            (Some(a), Some(b)) => Ok(compare_numbers(a, b)),
            _ => Err(Error::new(format!(
                "a {} and a {} can't be ordered",
                a.type_name(),
                b.type_name()
            ))),
        },
    }
}

/// Sorts as `sorted(items, key=…)` does: stable, and an error where two keys can't be ordered.
pub fn sort_by_key(keyed: &mut [(Value, Value)], reverse: bool) -> Result<()> {
    let mut failure = None;
    let mut unordered = false;
    let mut order = |a: &Value, b: &Value| match compare(a, b) {
        Ok(Some(order)) => order,
        Ok(None) => {
            unordered = true;
            Ordering::Equal
        }
        Err(error) => {
            failure.get_or_insert(error);
            Ordering::Equal
        }
    };
    match reverse {
        false => keyed.sort_by(|a, b| order(&a.0, &b.0)),
        true => keyed.sort_by(|a, b| order(&b.0, &a.0)),
    }
    if unordered {
        return Err(Error::new("NaN can't be sorted"));
    }
    failure.map_or(Ok(()), Err)
}
