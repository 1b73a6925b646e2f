//! Tokens to statements.

use std::sync::Arc;

use super::ast::*;
use super::error::{Error, Result};
use super::known;
use super::lexer::{tokenize, Token};

/// How deep expressions and blocks may be nested in the source.
const NESTING_MAX: usize = 150;

pub fn parse(source: &str) -> Result<Vec<Stmt>> {
    let tokens = tokenize(source)?;
    let unknown = Vec::new();
    let mut parser = Parser { tokens, at: 0, depth: 0, loops: 0, soft: false, unknown };
    let (stmts, _) = parser.statements_until(&[])?;
    match parser.unknown.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(stmts),
    }
}

pub(super) struct Parser {
    pub(super) tokens: Vec<(Token, u32)>,
    pub(super) at: usize,
    depth: usize,
    /// Loops around this place that `break` may leave.
    loops: usize,
    /// Directly in an `if`, where an unknown filter only matters once it is used.
    pub(super) soft: bool,
    /// Filters and tests that don't exist.
    pub(super) unknown: Vec<Error>,
}

impl Parser {
    pub(super) fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    pub(super) fn line(&self) -> u32 {
        self.tokens[self.at].1
    }

    pub(super) fn look(&self) -> &Token {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].0
    }

    pub(super) fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    pub(super) fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error::new(message).at(self.line()))
    }

    pub(super) fn is_op(&self, op: &str) -> bool {
        matches!(self.peek(), Token::Op(found) if *found == op)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Name(name) if name == word)
    }

    pub(super) fn skip_op(&mut self, op: &str) -> bool {
        let found = self.is_op(op);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn skip_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn expect_op(&mut self, op: &str) -> Result<()> {
        match self.skip_op(op) {
            true => Ok(()),
            false => self.fail(format!("expected {op:?}, got {}", show(self.peek()))),
        }
    }

    pub(super) fn expect_name(&mut self) -> Result<Name> {
        match self.peek() {
            Token::Name(name) => {
                let name: Name = name.as_str().into();
                self.advance();
                Ok(name)
            }
            other => self.fail(format!("expected a name, got {}", show(other))),
        }
    }

    pub(super) fn deeper<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= NESTING_MAX {
            return self.fail(format!("it is nested more than {NESTING_MAX} levels deep"));
        }
        self.depth += 1;
        let result = run(self);
        self.depth -= 1;
        result
    }

    /// Runs with other settings of `soft` and `loops`, and restores them.
    fn within<T>(
        &mut self,
        soft: bool,
        loops: usize,
        run: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let before = (self.soft, self.loops);
        (self.soft, self.loops) = (soft, loops);
        let result = run(self);
        (self.soft, self.loops) = before;
        result
    }

    /// Statements up to a block that begins with one of `ends`, whose word is taken. Without any
    /// `ends`: up to the end of the template.
    fn statements_until(&mut self, ends: &[&str]) -> Result<(Vec<Stmt>, String)> {
        let mut out = Vec::new();
        loop {
            let line = self.line();
            match self.peek().clone() {
                Token::End if ends.is_empty() => return Ok((out, String::new())),
                Token::End => return self.fail(format!("it ends without {:?}", ends[0])),
                Token::Text(text) => {
                    self.advance();
                    out.push(Stmt { line, kind: StmtKind::Text(text) });
                }
                Token::VariableBegin => {
                    self.advance();
                    let expr = self.tuple(true, &[], false)?;
                    if *self.peek() != Token::VariableEnd {
                        let found = show(self.peek());
                        return self.fail(format!("expected the end of an output, got {found}"));
                    }
                    self.advance();
                    out.push(Stmt { line, kind: StmtKind::Print(expr) });
                }
                _ => {
                    self.advance();
                    if let Token::Name(word) = self.peek() {
                        if ends.contains(&word.as_str()) {
                            let word = word.clone();
                            self.advance();
                            return Ok((out, word));
                        }
                    }
                    self.deeper(|parser| parser.statement(&mut out))?;
                    self.block_end()?;
                }
            }
        }
    }

    fn block_end(&mut self) -> Result<()> {
        if *self.peek() != Token::BlockEnd {
            return self.fail(format!("expected the end of a block, got {}", show(self.peek())));
        }
        self.advance();
        Ok(())
    }

    /// The body of a statement, with the block end before it. The end's word is taken.
    fn body(&mut self, ends: &[&str]) -> Result<(Vec<Stmt>, String)> {
        self.skip_op(":");
        self.block_end()?;
        self.statements_until(ends)
    }

    fn scoped(&mut self, end: &str) -> Result<Body> {
        let loops = self.loops;
        let (stmts, _) = self.within(false, loops, |parser| parser.body(&[end]))?;
        Ok(Body { names: Vec::new(), stmts })
    }

    fn statement(&mut self, out: &mut Vec<Stmt>) -> Result<()> {
        let line = self.line();
        let word = match self.peek() {
            Token::Name(word) => word.clone(),
            other => return self.fail(format!("expected a tag's name, got {}", show(other))),
        };
        let kind = match word.as_str() {
            "for" => self.for_loop()?,
            "if" => self.condition()?,
            "set" => self.set()?,
            "macro" => self.macro_definition()?,
            "call" => self.call_block()?,
            "filter" => {
                self.advance();
                let filter = self.within(false, self.loops, |p| p.filter(None, true))?;
                StmtKind::FilterBlock(filter, self.scoped("endfilter")?)
            }
            "with" => self.with()?,
            "print" => {
                self.advance();
                while *self.peek() != Token::BlockEnd {
                    let expr = self.expression()?;
                    out.push(Stmt { line, kind: StmtKind::Print(expr) });
                    if *self.peek() != Token::BlockEnd {
                        self.expect_op(",")?;
                    }
                }
                return Ok(());
            }
            "break" | "continue" => {
                if self.loops == 0 {
                    return self.fail(format!("{word:?} stands outside of a loop"));
                }
                self.advance();
                if word == "break" {
                    StmtKind::Break
                } else {
                    StmtKind::Continue
                }
            }
            "generation" => {
                // What the assistant says, marked for training: a call of a macro that prints it.
                self.advance();
                let (stmts, _) = self.within(false, 0, |p| p.body(&["endgeneration"]))?;
                StmtKind::With(Vec::new(), Body { names: Vec::new(), stmts })
            }
            "block" | "extends" | "include" | "import" | "from" | "autoescape" => {
                return Err(Error::unsupported(format!("the tag {word:?}")).at(line));
            }
            _ => return self.fail(format!("the tag {word:?} is not known")),
        };
        out.push(Stmt { line, kind });
        Ok(())
    }

    fn for_loop(&mut self) -> Result<StmtKind> {
        let begin = self.at;
        self.advance();
        let target = self.target(false, &["in"])?;
        if !self.skip_word("in") {
            return self.fail("expected \"in\"");
        }
        let iter = self.tuple(false, &["recursive"], false)?;
        let soft = self.soft;
        let test = match self.skip_word("if") {
            true => Some(self.within(false, self.loops, |parser| parser.expression())?),
            false => None,
        };
        let recursive = self.skip_word("recursive");
        // A recursive loop is a function of its own, and `break` ends its own loop all the same.
        let inner = if recursive { 1 } else { self.loops + 1 };
        let (stmts, end) = self.within(false, inner, |p| p.body(&["endfor", "else"]))?;
        let otherwise = match end.as_str() {
            "else" => {
                let outer = if recursive { 0 } else { self.loops };
                let (stmts, _) = self.within(false, outer, |p| p.body(&["endfor"]))?;
                Some(Body { names: Vec::new(), stmts })
            }
            _ => None,
        };
        self.soft = soft;
        self.refuse_loop_as_target(begin)?;
        let body = Body { names: Vec::new(), stmts };
        let test_names = Vec::new();
        let node = ForNode { target, iter, test, test_names, recursive, body, otherwise };
        Ok(StmtKind::For(Arc::new(node)))
    }

    /// Jinja refuses templates that assign to `loop` inside of a loop.
    fn refuse_loop_as_target(&self, begin: usize) -> Result<()> {
        let name =
            |at: usize, word: &str| matches!(&self.tokens[at].0, Token::Name(n) if n == word);
        for at in begin..self.at {
            let is_set = name(at, "set") || name(at, "for") || name(at, "macro");
            if is_set && name(at + 1, "loop") && !matches!(self.tokens[at + 2].0, Token::Op(".")) {
                return Err(Error::new("a loop assigns to \"loop\"").at(self.tokens[at].1));
            }
        }
        Ok(())
    }

    fn condition(&mut self) -> Result<StmtKind> {
        let loops = self.loops;
        let (mut branches, mut otherwise) = (Vec::new(), Vec::new());
        loop {
            self.advance();
            let test = self.within(true, loops, |parser| parser.tuple(false, &[], false))?;
            let ends = ["elif", "else", "endif"];
            let (stmts, end) = self.within(true, loops, |parser| parser.body(&ends))?;
            branches.push((test, stmts));
            match end.as_str() {
                "elif" => self.at -= 1,
                "else" => {
                    otherwise = self.within(true, loops, |parser| parser.body(&["endif"]))?.0;
                    break;
                }
                _ => break,
            }
        }
        Ok(StmtKind::If(IfNode { branches, otherwise }))
    }

    fn set(&mut self) -> Result<StmtKind> {
        self.advance();
        let target = self.target(true, &[])?;
        if self.skip_op("=") {
            return Ok(StmtKind::Set(target, self.tuple(true, &[], false)?));
        }
        let filter = match self.is_op("|") {
            true => Some(self.within(false, self.loops, |parser| parser.filter(None, false))?),
            false => None,
        };
        Ok(StmtKind::SetBlock(target, filter, self.scoped("endset")?))
    }

    fn with(&mut self) -> Result<StmtKind> {
        self.advance();
        let mut pairs = Vec::new();
        while *self.peek() != Token::BlockEnd {
            if !pairs.is_empty() {
                self.expect_op(",")?;
            }
            let target = self.target(false, &[])?;
            self.expect_op("=")?;
            pairs.push((target, self.expression()?));
        }
        Ok(StmtKind::With(pairs, self.scoped("endwith")?))
    }

    fn signature(&mut self) -> Result<(Vec<Name>, Vec<Expr>)> {
        let (mut args, mut defaults) = (Vec::new(), Vec::new());
        self.expect_op("(")?;
        while !self.is_op(")") {
            if !args.is_empty() {
                self.expect_op(",")?;
            }
            let name = self.expect_name()?;
            if args.contains(&name) {
                return self.fail(format!("the argument {name:?} is named twice"));
            }
            args.push(name);
            if self.skip_op("=") {
                defaults.push(self.expression()?);
            } else if !defaults.is_empty() {
                return self.fail("an argument without a default follows one with a default");
            }
        }
        self.advance();
        Ok((args, defaults))
    }

    fn macro_of(&mut self, name: Option<Name>, end: &str) -> Result<MacroNode> {
        let (args, defaults) = match self.is_op("(") {
            true => self.within(false, 0, |parser| parser.signature())?,
            false => (Vec::new(), Vec::new()),
        };
        let (stmts, _) = self.within(false, 0, |parser| parser.body(&[end]))?;
        Ok(MacroNode {
            name,
            args,
            defaults,
            body: Body { names: Vec::new(), stmts },
            uses_caller: false,
            uses_kwargs: false,
            uses_varargs: false,
        })
    }

    fn macro_definition(&mut self) -> Result<StmtKind> {
        self.advance();
        let name = self.expect_name()?;
        if !self.is_op("(") {
            return self.fail(format!("the macro {name:?} has no list of arguments"));
        }
        Ok(StmtKind::Macro(Arc::new(self.macro_of(Some(name), "endmacro")?)))
    }

    fn call_block(&mut self) -> Result<StmtKind> {
        self.advance();
        let (args, defaults) = match self.is_op("(") {
            true => self.within(false, 0, |parser| parser.signature())?,
            false => (Vec::new(), Vec::new()),
        };
        let call = self.expression()?;
        if !matches!(call.kind, ExprKind::Call(..)) {
            return self.fail("a call block needs a call");
        }
        let mut node = self.macro_of(None, "endcall")?;
        (node.args, node.defaults) = (args, defaults);
        Ok(StmtKind::Call(call, Arc::new(node)))
    }

    /// What is assigned to. `attributes`: also `ns.attribute`.
    fn target(&mut self, attributes: bool, ends: &[&str]) -> Result<Target> {
        let mut parts = Vec::new();
        let mut is_tuple = false;
        loop {
            let is_end = self.is_op(")")
                || matches!(self.peek(), Token::BlockEnd | Token::VariableEnd)
                || ends.iter().any(|word| self.is_word(word));
            if is_end {
                break;
            }
            parts.push(self.deeper(|parser| parser.target_part(attributes))?);
            if !self.skip_op(",") {
                break;
            }
            is_tuple = true;
        }
        match parts.pop() {
            Some(only) if parts.is_empty() && !is_tuple => Ok(only),
            Some(last) => {
                parts.push(last);
                Ok(Target::Tuple(parts))
            }
            None => self.fail(format!("expected a name to assign to, got {}", show(self.peek()))),
        }
    }

    fn target_part(&mut self, attributes: bool) -> Result<Target> {
        if self.skip_op("(") {
            let inner = self.target(attributes, &[])?;
            self.expect_op(")")?;
            return Ok(inner);
        }
        let name = self.expect_name()?;
        if matches!(&*name, "true" | "false" | "none" | "True" | "False" | "None") {
            return self.fail(format!("{name:?} can't be assigned to"));
        }
        if attributes && self.skip_op(".") {
            return Ok(Target::Attribute(name, self.expect_name()?));
        }
        Ok(Target::Name(name))
    }

    pub(super) fn check_filter(&mut self, name: &str, line: u32) -> Result<()> {
        match known::filter(name) {
            known::Known::Unsupported => {
                return Err(Error::unsupported(format!("the filter {name:?}")).at(line))
            }
            known::Known::No if !self.soft => {
                self.unknown.push(Error::new(format!("there is no filter {name:?}")).at(line));
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn check_test(&mut self, name: &str, line: u32) {
        if !known::is_test(name) && !self.soft {
            self.unknown.push(Error::new(format!("there is no test {name:?}")).at(line));
        }
    }
}

pub(super) fn show(token: &Token) -> String {
    match token {
        Token::Text(_) => "text".into(),
        Token::BlockBegin => "the begin of a block".into(),
        Token::BlockEnd => "the end of a block".into(),
        Token::VariableBegin => "the begin of an output".into(),
        Token::VariableEnd => "the end of an output".into(),
        Token::Name(name) => format!("{name:?}"),
        Token::Str(text) => format!("the string {text:?}"),
        Token::Int(number) => number.to_string(),
        Token::Float(number) => number.to_string(),
        Token::Op(op) => format!("{op:?}"),
        Token::End => "the end of the template".into(),
    }
}
