//! Which names belong to which scope, by the rules of Jinja's compiler.
//!
//! Jinja makes Python code of a template, so a name belongs to the innermost scope that assigns to
//! it anywhere, also behind the place where it is read. What it is before the assignment depends on
//! what was seen first: `Load` says it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ast::*;
use super::error::{Error, Result};

/// The names of one scope while they are gathered.
#[derive(Default, Clone)]
struct Symbols {
    names: Names,
    stores: BTreeSet<Name>,
}

impl Symbols {
    fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|(known, _)| **known == *name)
    }

    fn define(&mut self, name: &Name, load: Load) {
        match self.find(name) {
            Some(at) => self.names[at].1 = load,
            None => self.names.push((name.clone(), load)),
        }
    }

    fn parameter(&mut self, name: &Name) {
        self.stores.insert(name.clone());
        self.define(name, Load::Parameter);
    }
}

/// The scopes around a place, the outermost first; the last is the one that is gathered.
struct Resolver {
    outer: Vec<Symbols>,
}

pub fn resolve(stmts: Vec<Stmt>) -> Result<Body> {
    let mut resolver = Resolver { outer: Vec::new() };
    let mut body = Body { names: Vec::new(), stmts };
    resolver.scope(&mut body, |_, _| {})?;
    Ok(body)
}

impl Resolver {
    /// Gathers the names of `body`, then those of the scopes inside of it.
    fn scope(
        &mut self,
        body: &mut Body,
        parameters: impl FnOnce(&Resolver, &mut Symbols),
    ) -> Result<()> {
        let mut symbols = Symbols::default();
        parameters(self, &mut symbols);
        for stmt in &body.stmts {
            self.visit_stmt(stmt, &mut symbols);
        }
        body.names = symbols.names.clone();
        self.outer.push(symbols);
        let result = body.stmts.iter_mut().try_for_each(|stmt| self.inner(stmt));
        self.outer.pop();
        result
    }

    fn outer_has(&self, name: &str) -> bool {
        self.outer.iter().any(|symbols| symbols.find(name).is_some())
    }

    fn load(&self, name: &Name, symbols: &mut Symbols) {
        if symbols.find(name).is_none() && !self.outer_has(name) {
            symbols.define(name, Load::Resolve);
        }
    }

    fn store(&self, name: &Name, symbols: &mut Symbols) {
        symbols.stores.insert(name.clone());
        if symbols.find(name).is_none() {
            let load = if self.outer_has(name) { Load::Alias } else { Load::Undefined };
            symbols.define(name, load);
        }
    }

    fn target(&self, target: &Target, symbols: &mut Symbols) {
        match target {
            Target::Name(name) => self.store(name, symbols),
            Target::Attribute(name, _) => self.load(name, symbols),
            Target::Tuple(parts) => parts.iter().for_each(|part| self.target(part, symbols)),
        }
    }

    fn stmts(&self, stmts: &[Stmt], symbols: &mut Symbols) {
        stmts.iter().for_each(|stmt| self.visit_stmt(stmt, symbols));
    }

    /// What a statement reads and assigns in the scope that it stands in.
    fn visit_stmt(&self, stmt: &Stmt, symbols: &mut Symbols) {
        match &stmt.kind {
            StmtKind::Text(_) | StmtKind::Break | StmtKind::Continue => {}
            StmtKind::Print(expr) => self.expr(expr, symbols),
            StmtKind::For(node) => self.expr(&node.iter, symbols),
            StmtKind::If(node) => self.visit_if(node, 0, symbols),
            StmtKind::Macro(node) => {
                node.name.iter().for_each(|name| self.store(name, symbols));
            }
            StmtKind::Call(call, _) => self.expr(call, symbols),
            StmtKind::FilterBlock(filter, _) => self.expr(filter, symbols),
            StmtKind::Set(target, value) => {
                self.expr(value, symbols);
                self.target(target, symbols);
            }
            StmtKind::SetBlock(target, ..) => self.target(target, symbols),
            StmtKind::With(pairs, _) => {
                pairs.iter().for_each(|(_, value)| self.expr(value, symbols));
            }
        }
    }

    /// An `elif` is an `if` in the branch beside the first, as in Jinja.
    fn visit_if(&self, node: &IfNode, first: usize, symbols: &mut Symbols) {
        let (test, body) = &node.branches[first];
        self.expr(test, symbols);
        let mut branches = vec![symbols.clone(), symbols.clone(), symbols.clone()];
        self.stmts(body, &mut branches[0]);
        if first == 0 {
            for other in 1..node.branches.len() {
                self.visit_if_alone(node, other, &mut branches[1]);
            }
        }
        self.stmts(&node.otherwise, &mut branches[2]);
        self.merge(branches, symbols);
    }

    fn visit_if_alone(&self, node: &IfNode, at: usize, symbols: &mut Symbols) {
        let (test, body) = &node.branches[at];
        self.expr(test, symbols);
        let mut branch = symbols.clone();
        self.stmts(body, &mut branch);
        self.merge(vec![branch], symbols);
    }

    /// What only some branches assign has its outer value before them.
    fn merge(&self, branches: Vec<Symbols>, symbols: &mut Symbols) {
        let mut assigned = BTreeSet::new();
        for branch in branches {
            assigned.extend(branch.stores.difference(&symbols.stores).cloned());
            for (name, load) in branch.names {
                symbols.define(&name, load);
            }
        }
        for name in assigned {
            let load = if self.outer_has(&name) { Load::Alias } else { Load::Resolve };
            symbols.define(&name, load);
            symbols.stores.insert(name);
        }
    }

    fn exprs<'a>(&self, exprs: impl IntoIterator<Item = &'a Expr>, symbols: &mut Symbols) {
        exprs.into_iter().for_each(|expr| self.expr(expr, symbols));
    }

    fn args(&self, args: &Args, symbols: &mut Symbols) {
        self.exprs(&args.positional, symbols);
        self.exprs(args.named.iter().map(|(_, value)| value), symbols);
        self.exprs(args.star.iter().chain(&args.double_star), symbols);
    }

    fn expr(&self, expr: &Expr, symbols: &mut Symbols) {
        match &expr.kind {
            ExprKind::Const(_) => {}
            ExprKind::Name(name) => self.load(name, symbols),
            ExprKind::List(items) | ExprKind::Tuple(items) | ExprKind::Concat(items) => {
                self.exprs(items, symbols);
            }
            ExprKind::Dict(items) => {
                for (key, value) in items {
                    self.exprs([key, value], symbols);
                }
            }
            ExprKind::Unary(_, inner) | ExprKind::Not(inner) | ExprKind::Getattr(inner, _) => {
                self.expr(inner, symbols);
            }
            ExprKind::Binary(_, a, b)
            | ExprKind::And(a, b)
            | ExprKind::Or(a, b)
            | ExprKind::Getitem(a, b) => self.exprs([&**a, &**b], symbols),
            ExprKind::Compare(first, more) => {
                self.expr(first, symbols);
                self.exprs(more.iter().map(|(_, expr)| expr), symbols);
            }
            ExprKind::Cond(value, test, otherwise) => {
                self.exprs([&**test, &**value], symbols);
                self.exprs(otherwise.as_deref(), symbols);
            }
            ExprKind::Slice(start, stop, step) => {
                let parts = [start, stop, step];
                self.exprs(parts.into_iter().filter_map(|part| part.as_deref()), symbols);
            }
            ExprKind::Call(callee, args) => {
                self.expr(callee, symbols);
                self.args(args, symbols);
            }
            ExprKind::Filter(value, _, args) => {
                self.exprs(value.as_deref(), symbols);
                self.args(args, symbols);
            }
            ExprKind::Test(value, _, args) => {
                self.expr(value, symbols);
                self.args(args, symbols);
            }
        }
    }

    /// The scopes that a statement opens.
    fn inner(&mut self, stmt: &mut Stmt) -> Result<()> {
        match &mut stmt.kind {
            StmtKind::For(node) => self.for_scopes(unique(node)),
            StmtKind::If(node) => {
                let bodies = node.branches.iter_mut().map(|(_, body)| body);
                bodies
                    .chain([&mut node.otherwise])
                    .flat_map(|body| body.iter_mut())
                    .try_for_each(|stmt| self.inner(stmt))
            }
            StmtKind::Macro(node) | StmtKind::Call(_, node) => {
                self.macro_scope(unique(node)).map_err(|error| error.at(stmt.line))
            }
            StmtKind::FilterBlock(filter, body) => {
                self.scope(body, |_, _| {})?;
                // The filter's arguments are read in the block's scope, behind its statements.
                let mut symbols = symbols_of(body);
                self.expr(filter, &mut symbols);
                body.names = symbols.names;
                Ok(())
            }
            StmtKind::SetBlock(_, filter, body) => {
                self.scope(body, |_, _| {})?;
                let mut symbols = symbols_of(body);
                self.exprs(filter.as_ref(), &mut symbols);
                body.names = symbols.names;
                Ok(())
            }
            StmtKind::With(pairs, body) => {
                let mut names = BTreeSet::new();
                pairs.iter().for_each(|(target, _)| names_of(target, &mut names));
                self.scope(body, |_, symbols| names.iter().for_each(|name| symbols.parameter(name)))
            }
            _ => Ok(()),
        }
    }

    fn for_scopes(&mut self, node: &mut ForNode) -> Result<()> {
        let mut names = BTreeSet::new();
        names_of(&node.target, &mut names);
        if let Some(test) = &node.test {
            let mut symbols = Symbols::default();
            names.iter().for_each(|name| symbols.parameter(name));
            self.expr(test, &mut symbols);
            node.test_names = symbols.names;
        }
        names.insert("loop".into());
        self.scope(&mut node.body, |_, symbols| {
            names.iter().for_each(|name| symbols.parameter(name));
        })?;
        match &mut node.otherwise {
            Some(body) => self.scope(body, |_, _| {}),
            None => Ok(()),
        }
    }

    fn macro_scope(&mut self, node: &mut MacroNode) -> Result<()> {
        let used = |name: &str| stmts_use(&node.body.stmts, name);
        let (caller, kwargs, varargs) = (used("caller"), used("kwargs"), used("varargs"));
        let has = |name: &str| node.args.iter().position(|arg| **arg == *name);
        if let Some(at) = has("caller").filter(|_| caller) {
            if at + node.defaults.len() < node.args.len() {
                return Err(Error::new("the argument \"caller\" of a macro needs a default"));
            }
        }
        node.uses_caller = caller;
        node.uses_kwargs = kwargs && has("kwargs").is_none();
        node.uses_varargs = varargs && has("varargs").is_none();
        let mut more: Vec<Name> = node.args.clone();
        for (uses, name) in [
            (caller && has("caller").is_none(), "caller"),
            (node.uses_kwargs, "kwargs"),
            (node.uses_varargs, "varargs"),
        ] {
            more.extend(uses.then(|| Name::from(name)));
        }
        let defaults = &node.defaults;
        self.scope(&mut node.body, |resolver, symbols| {
            more.iter().for_each(|name| symbols.parameter(name));
            resolver.exprs(defaults, symbols);
        })
    }
}

fn unique<T>(node: &mut Arc<T>) -> &mut T {
    // The parser gave the node to nobody else.
    Arc::get_mut(node).expect("a node that only its parent holds")
}

fn symbols_of(body: &Body) -> Symbols {
    Symbols { names: body.names.clone(), stores: BTreeSet::new() }
}

fn names_of(target: &Target, into: &mut BTreeSet<Name>) {
    match target {
        Target::Name(name) => {
            into.insert(name.clone());
        }
        Target::Attribute(..) => {}
        Target::Tuple(parts) => parts.iter().for_each(|part| names_of(part, into)),
    }
}

/// Whether statements, or those inside of them, read `name`.
fn stmts_use(stmts: &[Stmt], name: &str) -> bool {
    let mut symbols = Symbols::default();
    // Without a scope around, every name that is read and not assigned before is one to resolve.
    let resolver = Resolver { outer: Vec::new() };
    stmts.iter().any(|stmt| {
        resolver.visit_stmt(stmt, &mut symbols);
        symbols.names.iter().any(|(known, load)| **known == *name && *load == Load::Resolve)
            || inner_bodies(stmt).into_iter().any(|body| stmts_use(body, name))
            || inner_exprs(stmt).into_iter().any(|expr| expr_uses(expr, name))
    })
}

fn expr_uses(expr: &Expr, name: &str) -> bool {
    let mut symbols = Symbols::default();
    Resolver { outer: Vec::new() }.expr(expr, &mut symbols);
    symbols.find(name).is_some()
}

fn inner_exprs(stmt: &Stmt) -> Vec<&Expr> {
    match &stmt.kind {
        StmtKind::For(node) => node.test.iter().collect(),
        StmtKind::Macro(node) | StmtKind::Call(_, node) => node.defaults.iter().collect(),
        StmtKind::SetBlock(_, filter, _) => filter.iter().collect(),
        _ => Vec::new(),
    }
}

fn inner_bodies(stmt: &Stmt) -> Vec<&[Stmt]> {
    match &stmt.kind {
        StmtKind::For(node) => {
            let otherwise = node.otherwise.iter().map(|body| &body.stmts[..]);
            std::iter::once(&node.body.stmts[..]).chain(otherwise).collect()
        }
        StmtKind::If(node) => {
            let bodies = node.branches.iter().map(|(_, body)| &body[..]);
            bodies.chain([&node.otherwise[..]]).collect()
        }
        StmtKind::Macro(node) | StmtKind::Call(_, node) => vec![&node.body.stmts],
        StmtKind::FilterBlock(_, body) | StmtKind::SetBlock(_, _, body) => vec![&body.stmts],
        StmtKind::With(_, body) => vec![&body.stmts],
        _ => Vec::new(),
    }
}
