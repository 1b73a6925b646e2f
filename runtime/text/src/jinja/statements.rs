//! Runs the statements of a template.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::ast::*;
use super::error::{Error, Result};
use super::eval::Interpreter;
use super::functions;
use super::print::write_str;
use super::value::*;

/// How a statement ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Normal,
    Break,
    Continue,
}

impl Interpreter<'_> {
    pub(super) fn statements(
        &mut self,
        stmts: &[Stmt],
        scope: ScopeId,
        out: &mut String,
    ) -> Result<Flow> {
        for stmt in stmts {
            self.step()?;
            let flow = self.statement(stmt, scope, out).map_err(|error| error.at(stmt.line))?;
            self.check_output(out)?;
            if flow != Flow::Normal {
                return Ok(flow);
            }
        }
        Ok(Flow::Normal)
    }

    fn statement(&mut self, stmt: &Stmt, scope: ScopeId, out: &mut String) -> Result<Flow> {
        match &stmt.kind {
            StmtKind::Text(text) => out.push_str(text),
            StmtKind::Print(expr) => write_str(&self.eval(expr, scope)?, out)?,
            StmtKind::For(node) => {
                let iterable = self.eval(&node.iter, scope)?;
                if !node.recursive {
                    return self.for_loop(node, iterable, scope, 0, out).map(|_| Flow::Normal);
                }
                let mut inner = String::new();
                self.for_loop(node, iterable, scope, 0, &mut inner)?;
                out.push_str(&inner);
            }
            StmtKind::If(node) => {
                for (test, body) in &node.branches {
                    if self.eval(test, scope)?.is_true() {
                        return self.statements(body, scope, out);
                    }
                }
                return self.statements(&node.otherwise, scope, out);
            }
            StmtKind::Macro(node) => {
                let value = self.define(node, scope);
                if let Some(name) = &node.name {
                    self.store(name, value, scope);
                }
            }
            StmtKind::Call(call, node) => {
                let caller = self.define(node, scope);
                let ExprKind::Call(callee, args) = &call.kind else {
                    return Err(Error::new("a call block needs a call"));
                };
                let callee = self.eval(callee, scope)?;
                let mut args = self.arguments(args, scope)?;
                args.named.push(("caller".into(), caller));
                write_str(&self.call(&callee, args)?, out)?;
            }
            StmtKind::FilterBlock(filter, body) => {
                let inner = self.enter(&body.names, Some(scope));
                let mut text = String::new();
                let flow = self.statements(&body.stmts, inner, &mut text)?;
                if flow == Flow::Normal {
                    write_str(&self.filtered(filter, Some(text.into()), inner)?, out)?;
                }
                self.leave(inner);
                return Ok(flow);
            }
            StmtKind::Set(target, value) => {
                self.check_target(target, scope)?;
                let value = self.eval(value, scope)?;
                self.assign(target, value, scope)?;
            }
            StmtKind::SetBlock(target, filter, body) => {
                let inner = self.enter(&body.names, Some(scope));
                let mut text = String::new();
                let flow = self.statements(&body.stmts, inner, &mut text)?;
                if flow == Flow::Normal {
                    let value = match filter {
                        Some(filter) => self.filtered(filter, Some(text.into()), inner)?,
                        None => text.into(),
                    };
                    self.check_target(target, scope)?;
                    self.assign(target, value, scope)?;
                }
                self.leave(inner);
                return Ok(flow);
            }
            StmtKind::With(pairs, body) => {
                let inner = self.enter(&body.names, Some(scope));
                for (target, value) in pairs {
                    let value = self.eval(value, scope)?;
                    self.assign(target, value, inner)?;
                }
                let flow = self.statements(&body.stmts, inner, out)?;
                self.leave(inner);
                return Ok(flow);
            }
            StmtKind::Break => return Ok(Flow::Break),
            StmtKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Normal)
    }

    fn define(&mut self, node: &Arc<MacroNode>, scope: ScopeId) -> Value {
        self.capture(scope);
        Value::Macro(Rc::new(MacroValue { node: node.clone(), scope }))
    }

    /// Only a namespace takes attributes; that is found out before the value is made.
    fn check_target(&self, target: &Target, scope: ScopeId) -> Result<()> {
        match target {
            Target::Name(_) => Ok(()),
            Target::Tuple(parts) => {
                parts.iter().try_for_each(|part| self.check_target(part, scope))
            }
            Target::Attribute(name, _) => match self.lookup(name, scope) {
                Value::Namespace(_) => Ok(()),
                other => Err(Error::new(format!(
                    "an attribute of {name:?} is assigned to, which is a {} and no namespace",
                    other.type_name()
                ))),
            },
        }
    }

    fn assign(&mut self, target: &Target, value: Value, scope: ScopeId) -> Result<()> {
        match target {
            Target::Name(name) => self.store(name, value, scope),
            Target::Attribute(name, attribute) => {
                functions::check_namespace_name(attribute)?;
                let Value::Namespace(names) = self.lookup(name, scope) else {
                    return Err(Error::new(format!("{name:?} is no namespace")));
                };
                let key = Key(Value::from(attribute.clone()));
                let before = names.borrow_mut().insert(key, value);
                drop(before);
            }
            Target::Tuple(parts) => {
                let items = value.items()?;
                if items.len() != parts.len() {
                    return Err(Error::new(format!(
                        "{} values don't fit {} names",
                        items.len(),
                        parts.len()
                    )));
                }
                for (part, item) in parts.iter().zip(items) {
                    self.assign(part, item, scope)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn for_loop(
        &mut self,
        node: &Arc<ForNode>,
        iterable: Value,
        scope: ScopeId,
        depth0: i128,
        out: &mut String,
    ) -> Result<()> {
        let source = iterable.iter()?;
        let test_scope = node.test.as_ref().map(|_| self.enter(&node.test_names, Some(scope)));
        let (items, filter) = match test_scope {
            None => (source, None),
            Some(test_scope) => {
                let none = Value::generator(Vec::new(), None).iter()?;
                (none, Some((source, node.clone(), test_scope)))
            }
        };
        let state = Rc::new(RefCell::new(LoopState {
            items: items.clone(),
            length: if filter.is_none() { iterable.length() } else { None },
            index0: -1,
            before: None,
            current: None,
            last_changed: None,
            depth0,
            recurse: node.recursive.then(|| (node.clone(), scope)),
            filter,
        }));
        let inner = self.enter(&node.body.names, Some(scope));
        let mut is_empty = true;
        loop {
            self.step()?;
            self.pull(&state, false)?;
            let next = items.borrow_mut().next()?;
            let Some(item) = next else { break };
            {
                let mut state = state.borrow_mut();
                state.index0 += 1;
                state.before = state.current.take();
                state.current = Some(item.clone());
            }
            self.assign(&node.target, item, inner)?;
            self.store(&loop_name(node), Value::Loop(state.clone()), inner);
            self.begin(inner, &node.body.names);
            match self.statements(&node.body.stmts, inner, out)? {
                Flow::Normal => is_empty = false,
                Flow::Continue => {}
                Flow::Break => break,
            }
        }
        self.leave(inner);
        if let Some(test_scope) = test_scope {
            self.leave(test_scope);
        }
        // As in Jinja, rounds that ended with `continue` or `break` don't count.
        match &node.otherwise {
            Some(body) if is_empty => {
                let inner = self.enter(&body.names, Some(scope));
                self.statements(&body.stmts, inner, out)?;
                self.leave(inner);
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes items that pass a loop's condition from its source: the next one, or all.
    pub(super) fn pull(&mut self, state: &Rc<RefCell<LoopState>>, all: bool) -> Result<()> {
        loop {
            let (items, filter) = {
                let state = state.borrow();
                (state.items.clone(), state.filter.clone())
            };
            let Some((source, node, scope)) = filter else { return Ok(()) };
            if !all && !items.borrow().items.is_empty() {
                return Ok(());
            }
            self.step()?;
            let next = source.borrow_mut().next()?;
            let Some(item) = next else {
                state.borrow_mut().filter = None;
                return Ok(());
            };
            self.assign(&node.target, item.clone(), scope)?;
            let passes = match &node.test {
                Some(test) => self.eval(test, scope)?.is_true(),
                None => true,
            };
            if passes {
                items.borrow_mut().items.push_back(item);
            }
        }
    }
}

/// The name `loop`, without making it anew each time.
fn loop_name(node: &ForNode) -> Name {
    let known = node.body.names.iter().find(|(name, _)| &**name == "loop");
    known.map_or_else(|| "loop".into(), |(name, _)| name.clone())
}
