//! Runs the expressions of a template.

use std::cell::RefCell;
use std::rc::Rc;

use super::args::CallArgs;
use super::ast::*;
use super::error::{Error, Kind, Result};
use super::filters;
use super::functions;
use super::methods;
use super::ops;
use super::print::write_str;
use super::sequences::apply_test;
use super::value::*;
use super::Limits;
use crate::bounded;

/// Macros and recursive loops inside of each other.
const CALLS_MAX: usize = 200;
/// So often it is looked whether the result is still wanted; a step may go over megabytes.
const STEPS_BETWEEN_LOOKS: u64 = 16;

/// The names of one run of a scope.
#[derive(Default)]
pub(super) struct Scope {
    pub names: Vec<(Name, Option<Value>)>,
    pub parent: Option<ScopeId>,
    /// A macro was defined in it, which may outlive it.
    captured: bool,
}

pub struct Interpreter<'a> {
    context: &'a Dict,
    pub(super) limits: &'a Limits,
    pub(super) scopes: Vec<Scope>,
    free: Vec<ScopeId>,
    steps_left: u64,
    pub(super) calls: usize,
    /// Emptied at the end, because they may hold each other.
    pub(super) namespaces: Vec<Rc<RefCell<Dict>>>,
}

impl Drop for Interpreter<'_> {
    fn drop(&mut self) {
        for names in &self.namespaces {
            let dropped = std::mem::take(&mut *names.borrow_mut());
            drop(dropped);
        }
    }
}

impl<'a> Interpreter<'a> {
    pub fn new(context: &'a Dict, limits: &'a Limits) -> Self {
        Interpreter {
            context,
            limits,
            scopes: Vec::new(),
            free: Vec::new(),
            steps_left: limits.steps,
            calls: 0,
            namespaces: Vec::new(),
        }
    }

    pub fn run(&mut self, body: &Body) -> Result<String> {
        let scope = self.enter(&body.names, None);
        let mut out = String::new();
        self.statements(&body.stmts, scope, &mut out)?;
        Ok(out)
    }

    pub(super) fn step(&mut self) -> Result<()> {
        if self.steps_left == 0 {
            return Err(Error::of(Kind::Steps, "it takes too many steps"));
        }
        self.steps_left -= 1;
        if bounded::is_over_budget() {
            return Err(Error::of(Kind::Memory, "it takes too much memory"));
        }
        if self.steps_left % STEPS_BETWEEN_LOOKS == 0 && bounded::is_given_up() {
            return Err(Error::of(Kind::Steps, "it takes too long"));
        }
        Ok(())
    }

    /// What the caller handed in, or a global function.
    fn resolve(&self, name: &str) -> Option<Value> {
        match get_str(self.context, name) {
            Some(value) => Some(value.clone()),
            None => functions::global(name),
        }
    }

    pub(super) fn enter(&mut self, names: &Names, parent: Option<ScopeId>) -> ScopeId {
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.scopes.push(Scope::default());
                self.scopes.len() - 1
            }
        };
        self.scopes[id].parent = parent;
        self.begin(id, names);
        id
    }

    /// Gives the names of a scope what they begin with; parameters keep what they have.
    pub(super) fn begin(&mut self, id: ScopeId, names: &Names) {
        let mut values = std::mem::take(&mut self.scopes[id].names);
        let is_new = values.len() != names.len();
        if is_new {
            values.clear();
            values.extend(names.iter().map(|(name, _)| (name.clone(), None)));
        }
        for ((name, load), (_, value)) in names.iter().zip(&mut values) {
            match load {
                Load::Parameter => {}
                Load::Undefined => *value = None,
                Load::Resolve => *value = self.resolve(name),
                Load::Alias => {
                    *value = self.scopes[id].parent.and_then(|parent| self.find(name, parent));
                }
            }
        }
        self.scopes[id].names = values;
    }

    pub(super) fn leave(&mut self, id: ScopeId) {
        if self.scopes[id].captured {
            self.scopes[id].names.iter_mut().for_each(|(_, value)| *value = None);
            return;
        }
        self.scopes[id].names.clear();
        self.free.push(id);
    }

    /// Keeps a scope and those around it for a macro that was defined there.
    pub(super) fn capture(&mut self, id: ScopeId) {
        let mut next = Some(id);
        while let Some(id) = next {
            if self.scopes[id].captured {
                return;
            }
            self.scopes[id].captured = true;
            next = self.scopes[id].parent;
        }
    }

    fn find(&self, name: &Name, scope: ScopeId) -> Option<Value> {
        let mut next = Some(scope);
        while let Some(id) = next {
            let scope = &self.scopes[id];
            if let Some((_, value)) = scope.names.iter().find(|(known, _)| known == name) {
                return value.clone();
            }
            next = scope.parent;
        }
        self.resolve(name)
    }

    pub(super) fn lookup(&self, name: &Name, scope: ScopeId) -> Value {
        self.find(name, scope).unwrap_or_else(|| Value::missing(name.clone(), Why::Name))
    }

    pub(super) fn store(&mut self, name: &Name, value: Value, scope: ScopeId) {
        let names = &mut self.scopes[scope].names;
        match names.iter_mut().find(|(known, _)| known == name) {
            Some((_, slot)) => *slot = Some(value),
            None => names.push((name.clone(), Some(value))),
        }
    }

    pub(super) fn eval(&mut self, expr: &Expr, scope: ScopeId) -> Result<Value> {
        self.step()?;
        self.eval_kind(expr, scope).map_err(|error| error.at(expr.line))
    }

    fn eval_all(&mut self, exprs: &[Expr], scope: ScopeId) -> Result<Vec<Value>> {
        exprs.iter().map(|expr| self.eval(expr, scope)).collect()
    }

    fn eval_kind(&mut self, expr: &Expr, scope: ScopeId) -> Result<Value> {
        Ok(match &expr.kind {
            ExprKind::Const(value) => constant(value),
            ExprKind::Name(name) => self.lookup(name, scope),
            ExprKind::List(items) => Value::list(self.eval_all(items, scope)?),
            ExprKind::Tuple(items) => Value::tuple(self.eval_all(items, scope)?),
            ExprKind::Dict(items) => {
                let mut dict = Dict::with_capacity(items.len());
                for (key, value) in items {
                    let key = self.eval(key, scope)?;
                    let value = self.eval(value, scope)?;
                    dict.insert(key.into_key()?, value);
                }
                Value::dict(dict)
            }
            ExprKind::Unary(sign, inner) => ops::unary(*sign, &self.eval(inner, scope)?)?,
            ExprKind::Binary(op, a, b) => {
                let a = self.eval(a, scope)?;
                ops::binary(*op, &a, &self.eval(b, scope)?)?
            }
            ExprKind::Concat(parts) => {
                let mut out = String::new();
                for part in parts {
                    write_str(&self.eval(part, scope)?, &mut out)?;
                }
                out.into()
            }
            ExprKind::Compare(first, more) => {
                let mut left = self.eval(first, scope)?;
                for (op, expr) in more {
                    let right = self.eval(expr, scope)?;
                    if !ops::compare_op(*op, &left, &right)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Value::Bool(true)
            }
            ExprKind::And(a, b) => {
                let a = self.eval(a, scope)?;
                if a.is_true() {
                    self.eval(b, scope)?
                } else {
                    a
                }
            }
            ExprKind::Or(a, b) => {
                let a = self.eval(a, scope)?;
                if a.is_true() {
                    a
                } else {
                    self.eval(b, scope)?
                }
            }
            ExprKind::Not(inner) => Value::Bool(!self.eval(inner, scope)?.is_true()),
            ExprKind::Cond(value, test, otherwise) => {
                if self.eval(test, scope)?.is_true() {
                    self.eval(value, scope)?
                } else {
                    match otherwise {
                        Some(otherwise) => self.eval(otherwise, scope)?,
                        None => Value::hint("an inline \"if\" was false and has no \"else\""),
                    }
                }
            }
            ExprKind::Getattr(object, name) => {
                let object = self.eval(object, scope)?;
                self.prepare_loop(&object, name)?;
                ops::getattr(&object, name)?
            }
            ExprKind::Getitem(object, key) => self.subscript(object, key, scope)?,
            ExprKind::Slice(..) => return Err(Error::new("a slice stands outside of brackets")),
            ExprKind::Call(callee, args) => {
                let callee = self.eval(callee, scope)?;
                let args = self.arguments(args, scope)?;
                self.call(&callee, args)?
            }
            ExprKind::Filter(..) => self.filtered(expr, None, scope)?,
            ExprKind::Test(value, name, args) => {
                let value = self.eval(value, scope)?;
                let args = self.arguments(args, scope)?;
                Value::Bool(apply_test(name, &value, args)?)
            }
        })
    }

    fn subscript(&mut self, object: &Expr, key: &Expr, scope: ScopeId) -> Result<Value> {
        let object = self.eval(object, scope)?;
        if let ExprKind::Slice(start, stop, step) = &key.kind {
            let mut part = |part: &Option<Box<Expr>>| {
                part.as_ref().map(|part| self.eval(part, scope)).transpose()
            };
            let parts = [part(start)?, part(stop)?, part(step)?];
            return ops::slice(&object, parts);
        }
        let key = self.eval(key, scope)?;
        if let Value::Str(name) = &key {
            self.prepare_loop(&object, name)?;
        }
        ops::getitem(&object, &key)
    }

    /// `value | filter`, where `text` is the value of a filtered block.
    pub(super) fn filtered(
        &mut self,
        expr: &Expr,
        text: Option<Value>,
        scope: ScopeId,
    ) -> Result<Value> {
        let ExprKind::Filter(value, name, args) = &expr.kind else {
            return Err(Error::new("expected a filter"));
        };
        let value = match (value, text) {
            (Some(inner), Some(text)) => self.filtered(inner, Some(text), scope)?,
            (Some(inner), None) => self.eval(inner, scope)?,
            (None, text) => text.unwrap_or(Value::None),
        };
        let args = self.arguments(args, scope)?;
        let length = match &value {
            Value::List(items) | Value::Tuple(items) => items.len(),
            Value::Str(text) => text.len() / 64,
            _ => 0,
        };
        self.steps_left = self.steps_left.saturating_sub(length as u64);
        filters::apply(name, value, args).map_err(|error| error.at(expr.line))
    }

    pub(super) fn arguments(&mut self, args: &Args, scope: ScopeId) -> Result<CallArgs> {
        let mut out = CallArgs::of(self.eval_all(&args.positional, scope)?);
        for (name, value) in &args.named {
            out.named.push((name.to_string(), self.eval(value, scope)?));
        }
        if let Some(star) = &args.star {
            out.positional.extend(self.eval(star, scope)?.items()?);
        }
        if let Some(stars) = &args.double_star {
            let Value::Dict(dict) = self.eval(stars, scope)? else {
                return Err(Error::new("what follows ** is no dict"));
            };
            for (key, value) in dict.iter() {
                let Value::Str(name) = &key.0 else {
                    return Err(Error::new("names of arguments are strings"));
                };
                if out.named.iter().any(|(known, _)| **known == **name) {
                    return Err(Error::new(format!("the argument {:?} is given twice", &**name)));
                }
                out.named.push((name.to_string(), value.clone()));
            }
        }
        Ok(out)
    }

    pub(super) fn call(&mut self, callee: &Value, args: CallArgs) -> Result<Value> {
        match callee {
            Value::Macro(node) => self.call_macro(node, args),
            Value::Method(method) => {
                let (object, name) = &**method;
                methods::call(object, name, args)
            }
            Value::Function(name) => functions::call(self, name, args),
            Value::Loop(state) => self.call_loop(state, args),
            Value::Joiner(joiner) => {
                args.none("a joiner")?;
                let was_used = std::mem::replace(&mut *joiner.1.borrow_mut(), true);
                Ok(if was_used { joiner.0.clone() } else { Value::from("") })
            }
            Value::Undefined(undefined) => Err(Error::new(undefined.message())),
            other => Err(Error::new(format!("a {} can't be called", other.type_name()))),
        }
    }

    pub(super) fn deeper<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.calls >= CALLS_MAX {
            return Err(Error::new(format!("calls are nested more than {CALLS_MAX} deep")));
        }
        self.calls += 1;
        let result = run(self);
        self.calls -= 1;
        result
    }

    fn call_macro(&mut self, value: &MacroValue, mut args: CallArgs) -> Result<Value> {
        let node = &value.node;
        let show = || node.name.as_deref().unwrap_or("caller").to_string();
        let mut given = std::mem::take(&mut args.positional).into_iter();
        let mut parameters: Vec<(Name, Option<Value>)> = Vec::new();
        let mut found_caller = false;
        let takes_caller = node.args.iter().any(|name| &**name == "caller");
        for name in &node.args {
            let value = given.next().or_else(|| {
                found_caller |= &**name == "caller";
                args.take_named(name)
            });
            parameters.push((name.clone(), value));
        }
        if given.len() > 0 || parameters.iter().all(|(_, value)| value.is_some()) {
            found_caller |= takes_caller;
        }
        if node.uses_caller && !found_caller && !takes_caller {
            let caller = args.take_named("caller").filter(|caller| !matches!(caller, Value::None));
            let caller = caller.unwrap_or_else(|| Value::hint("No caller defined"));
            parameters.push(("caller".into(), Some(caller)));
        }
        if node.uses_kwargs {
            let named = std::mem::take(&mut args.named);
            let named = named.into_iter().map(|(name, value)| (Key(Value::from(name)), value));
            parameters.push(("kwargs".into(), Some(Value::dict(named.collect()))));
        } else if let Some((name, _)) = args.named.first() {
            return Err(Error::new(format!("the macro {:?} takes no argument {name:?}", show())));
        }
        if node.uses_varargs {
            parameters.push(("varargs".into(), Some(Value::tuple(given.collect()))));
        } else if given.len() > 0 {
            let most = node.args.len();
            return Err(Error::new(format!(
                "the macro {:?} takes at most {most} arguments",
                show()
            )));
        }
        self.deeper(|interpreter| {
            let scope = interpreter.enter(&node.body.names, Some(value.scope));
            for (name, value) in &parameters {
                if let Some(value) = value {
                    interpreter.store(name, value.clone(), scope);
                }
            }
            let result = interpreter.macro_body(node, &parameters, scope);
            interpreter.leave(scope);
            result
        })
    }

    fn macro_body(
        &mut self,
        node: &MacroNode,
        parameters: &[(Name, Option<Value>)],
        scope: ScopeId,
    ) -> Result<Value> {
        let first_default = node.args.len().saturating_sub(node.defaults.len());
        for (i, (name, value)) in parameters.iter().take(node.args.len()).enumerate() {
            if value.is_some() {
                continue;
            }
            let default = match i.checked_sub(first_default).and_then(|i| node.defaults.get(i)) {
                Some(default) => self.eval(default, scope)?,
                None => Value::hint(&format!("parameter {name:?} was not provided")),
            };
            self.store(name, default, scope);
        }
        let mut out = String::new();
        self.statements(&node.body.stmts, scope, &mut out)?;
        Ok(out.into())
    }

    /// Before `loop.last` and the like are read, a loop with a condition looks ahead.
    fn prepare_loop(&mut self, object: &Value, name: &str) -> Result<()> {
        let Value::Loop(state) = object else { return Ok(()) };
        match name {
            "last" | "nextitem" => self.pull(state, false),
            "length" | "revindex" | "revindex0" => self.pull(state, true),
            _ => Ok(()),
        }
    }

    fn call_loop(&mut self, state: &Rc<RefCell<LoopState>>, args: CallArgs) -> Result<Value> {
        let [iterable] = args.bind("loop", ["iterable"], 1)?;
        let (recurse, depth) = {
            let state = state.borrow();
            (state.recurse.clone(), state.depth0 + 1)
        };
        let Some((node, scope)) = recurse else {
            return Err(Error::new("only a loop marked \"recursive\" can be called"));
        };
        let iterable = iterable.unwrap_or(Value::None);
        self.deeper(|interpreter| {
            let mut out = String::new();
            interpreter.for_loop(&node, iterable, scope, depth, &mut out)?;
            Ok(out.into())
        })
    }

    pub(super) fn check_output(&self, out: &str) -> Result<()> {
        match out.len() > self.limits.output_bytes {
            true => Err(Error::of(Kind::Output, "it writes too much")),
            false => Ok(()),
        }
    }
}

fn constant(value: &Const) -> Value {
    match value {
        Const::None => Value::None,
        Const::Bool(yes) => Value::Bool(*yes),
        Const::Int(number) => Value::Int(*number),
        Const::Float(number) => Value::Float(*number),
        Const::Str(text) => Value::from(text.clone()),
    }
}
