//! The parser's part for expressions.

use super::ast::*;
use super::error::{Error, Result};
use super::known;
use super::lexer::Token;
use super::parser::{show, Parser};

impl Parser {
    pub(super) fn expression(&mut self) -> Result<Expr> {
        self.deeper(|parser| parser.conditional())
    }

    /// An expression, or several with commas between them.
    pub(super) fn tuple(
        &mut self,
        conditional: bool,
        ends: &[&str],
        in_parentheses: bool,
    ) -> Result<Expr> {
        let mut line = self.line();
        let mut items = Vec::new();
        let mut is_tuple = false;
        loop {
            let is_end = self.is_op(")")
                || matches!(self.peek(), Token::BlockEnd | Token::VariableEnd)
                || ends.iter().any(|word| self.is_word(word));
            if is_end {
                break;
            }
            items.push(match conditional {
                true => self.expression()?,
                false => self.deeper(|parser| parser.or())?,
            });
            line = self.line();
            if !self.skip_op(",") {
                break;
            }
            is_tuple = true;
        }
        if !is_tuple {
            match items.pop() {
                Some(only) => return Ok(only),
                None if !in_parentheses => {
                    return self.fail(format!("expected an expression, got {}", show(self.peek())));
                }
                None => {}
            }
        }
        Ok(Expr { line, kind: ExprKind::Tuple(items) })
    }

    fn conditional(&mut self) -> Result<Expr> {
        let soft = self.soft;
        let unknown = self.unknown.len();
        let mut value = self.or()?;
        if self.is_word("if") {
            // Inside of a conditional expression an unknown filter is an error only when it is run,
            // also in what stands in front of the `if`.
            self.unknown.truncate(unknown);
            self.soft = true;
        }
        while self.is_word("if") {
            let line = self.line();
            self.advance();
            let test = self.or()?;
            let otherwise = match self.skip_word("else") {
                true => Some(Box::new(self.deeper(|parser| parser.conditional())?)),
                false => None,
            };
            let kind = ExprKind::Cond(Box::new(value), Box::new(test), otherwise);
            value = Expr { line, kind };
        }
        self.soft = soft;
        Ok(value)
    }

    pub(super) fn or(&mut self) -> Result<Expr> {
        let mut left = self.and()?;
        while self.is_word("or") {
            let line = self.line();
            self.advance();
            let right = self.and()?;
            left = Expr { line, kind: ExprKind::Or(Box::new(left), Box::new(right)) };
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expr> {
        let mut left = self.not()?;
        while self.is_word("and") {
            let line = self.line();
            self.advance();
            let right = self.not()?;
            left = Expr { line, kind: ExprKind::And(Box::new(left), Box::new(right)) };
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expr> {
        let line = self.line();
        if self.skip_word("not") {
            let inner = self.deeper(|parser| parser.not())?;
            return Ok(Expr { line, kind: ExprKind::Not(Box::new(inner)) });
        }
        self.compare()
    }

    fn compare(&mut self) -> Result<Expr> {
        let line = self.line();
        let first = self.sum()?;
        let mut more = Vec::new();
        loop {
            let op = match self.peek() {
                Token::Op("==") => CmpOp::Eq,
                Token::Op("!=") => CmpOp::Ne,
                Token::Op("<") => CmpOp::Lt,
                Token::Op("<=") => CmpOp::Le,
                Token::Op(">") => CmpOp::Gt,
                Token::Op(">=") => CmpOp::Ge,
                Token::Name(word) if word == "in" => CmpOp::In,
                Token::Name(word) if word == "not" => match self.look() {
                    Token::Name(next) if next == "in" => {
                        self.advance();
                        CmpOp::NotIn
                    }
                    _ => break,
                },
                _ => break,
            };
            self.advance();
            more.push((op, self.sum()?));
        }
        if more.is_empty() {
            return Ok(first);
        }
        Ok(Expr { line, kind: ExprKind::Compare(Box::new(first), more) })
    }

    fn binary(
        &mut self,
        ops: &[(&str, BinOp)],
        next: impl Fn(&mut Self) -> Result<Expr>,
    ) -> Result<Expr> {
        let mut left = next(self)?;
        while let Some((_, op)) = ops.iter().find(|(text, _)| self.is_op(text)) {
            let line = self.line();
            self.advance();
            let right = next(self)?;
            left = Expr { line, kind: ExprKind::Binary(*op, Box::new(left), Box::new(right)) };
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Expr> {
        self.binary(&[("+", BinOp::Add), ("-", BinOp::Sub)], Parser::concat)
    }

    fn concat(&mut self) -> Result<Expr> {
        let line = self.line();
        let first = self.product()?;
        if !self.is_op("~") {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.skip_op("~") {
            parts.push(self.product()?);
        }
        Ok(Expr { line, kind: ExprKind::Concat(parts) })
    }

    fn product(&mut self) -> Result<Expr> {
        let ops =
            [("*", BinOp::Mul), ("/", BinOp::Div), ("//", BinOp::FloorDiv), ("%", BinOp::Mod)];
        self.binary(&ops, |parser| {
            parser.binary(&[("**", BinOp::Pow)], |parser| parser.unary(true))
        })
    }

    fn unary(&mut self, with_filter: bool) -> Result<Expr> {
        let line = self.line();
        let sign = match self.peek() {
            Token::Op("-") => Some('-'),
            Token::Op("+") => Some('+'),
            _ => None,
        };
        let mut node = match sign {
            Some(sign) => {
                self.advance();
                let inner = self.deeper(|parser| parser.unary(false))?;
                Expr { line, kind: ExprKind::Unary(sign, Box::new(inner)) }
            }
            None => self.primary()?,
        };
        loop {
            if self.is_op(".") || self.is_op("[") {
                node = self.subscript(node)?;
            } else if self.is_op("(") {
                node = self.call(node)?;
            } else {
                break;
            }
        }
        while with_filter {
            if self.is_op("|") {
                node = self.filter(Some(node), false)?;
            } else if self.is_word("is") {
                node = self.test(node)?;
            } else if self.is_op("(") {
                node = self.call(node)?;
            } else {
                break;
            }
        }
        Ok(node)
    }

    fn primary(&mut self) -> Result<Expr> {
        let line = self.line();
        let constant = |value| Expr { line, kind: ExprKind::Const(value) };
        let node = match self.peek().clone() {
            Token::Name(name) => {
                self.advance();
                match name.as_str() {
                    "true" | "True" => constant(Const::Bool(true)),
                    "false" | "False" => constant(Const::Bool(false)),
                    "none" | "None" => constant(Const::None),
                    "self" => return Err(Error::unsupported("the variable \"self\"").at(line)),
                    "lipsum" if !self.is_op(".") => {
                        return Err(Error::unsupported("the function \"lipsum\"").at(line));
                    }
                    _ => Expr { line, kind: ExprKind::Name(name.as_str().into()) },
                }
            }
            Token::Str(mut text) => {
                self.advance();
                while let Token::Str(more) = self.peek() {
                    text.push_str(more);
                    self.advance();
                }
                constant(Const::Str(text.into()))
            }
            Token::Int(number) => {
                self.advance();
                constant(Const::Int(number))
            }
            Token::Float(number) => {
                self.advance();
                constant(Const::Float(number))
            }
            Token::Op("(") => {
                self.advance();
                let inner = self.deeper(|parser| parser.tuple(true, &[], true))?;
                self.expect_op(")")?;
                inner
            }
            Token::Op("[") => {
                self.advance();
                let mut items = Vec::new();
                while !self.is_op("]") {
                    items.push(self.expression()?);
                    if !self.is_op("]") {
                        self.expect_op(",")?;
                    }
                }
                self.advance();
                Expr { line, kind: ExprKind::List(items) }
            }
            Token::Op("{") => {
                self.advance();
                let mut items = Vec::new();
                while !self.is_op("}") {
                    let key = self.expression()?;
                    self.expect_op(":")?;
                    items.push((key, self.expression()?));
                    if !self.is_op("}") {
                        self.expect_op(",")?;
                    }
                }
                self.advance();
                Expr { line, kind: ExprKind::Dict(items) }
            }
            other => return self.fail(format!("{} has no place here", show(&other))),
        };
        Ok(node)
    }

    fn subscript(&mut self, node: Expr) -> Result<Expr> {
        let line = self.line();
        if self.skip_op(".") {
            let kind = match self.peek().clone() {
                Token::Name(name) => ExprKind::Getattr(Box::new(node), name.as_str().into()),
                Token::Int(number) => {
                    let index = Expr { line, kind: ExprKind::Const(Const::Int(number)) };
                    ExprKind::Getitem(Box::new(node), Box::new(index))
                }
                other => {
                    let found = show(&other);
                    return self.fail(format!("expected a name or a number, got {found}"));
                }
            };
            self.advance();
            return Ok(Expr { line, kind });
        }
        self.advance();
        let mut items = Vec::new();
        while !self.is_op("]") {
            if !items.is_empty() {
                self.expect_op(",")?;
            }
            items.push(self.subscribed()?);
        }
        self.advance();
        let index = match items.pop() {
            Some(only) if items.is_empty() => only,
            last => {
                items.extend(last);
                Expr { line, kind: ExprKind::Tuple(items) }
            }
        };
        Ok(Expr { line, kind: ExprKind::Getitem(Box::new(node), Box::new(index)) })
    }

    fn subscribed(&mut self) -> Result<Expr> {
        let line = self.line();
        let mut start = None;
        if !self.is_op(":") {
            let node = self.expression()?;
            if !self.is_op(":") {
                return Ok(node);
            }
            start = Some(Box::new(node));
        }
        self.advance();
        let is_end = |parser: &Self| parser.is_op("]") || parser.is_op(",");
        let mut stop = None;
        if !self.is_op(":") && !is_end(self) {
            stop = Some(Box::new(self.expression()?));
        }
        let mut step = None;
        if self.skip_op(":") && !is_end(self) {
            step = Some(Box::new(self.expression()?));
        }
        Ok(Expr { line, kind: ExprKind::Slice(start, stop, step) })
    }

    fn call(&mut self, node: Expr) -> Result<Expr> {
        let line = self.line();
        if let ExprKind::Getattr(_, name) = &node.kind {
            if known::UNSUPPORTED_METHODS.contains(&&**name) {
                return Err(Error::unsupported(format!("the method {name:?}")).at(line));
            }
        }
        let args = self.call_args()?;
        Ok(Expr { line, kind: ExprKind::Call(Box::new(node), Box::new(args)) })
    }

    fn call_args(&mut self) -> Result<Args> {
        self.expect_op("(")?;
        let mut args = Args::default();
        let mut first = true;
        while !self.is_op(")") {
            if !first {
                self.expect_op(",")?;
                if self.is_op(")") {
                    break;
                }
            }
            first = false;
            let after_stars = args.star.is_some() || args.double_star.is_some();
            let is_named = matches!(self.peek(), Token::Name(_)) && *self.look() == Token::Op("=");
            if self.is_op("*") && !after_stars {
                self.advance();
                args.star = Some(self.expression()?);
            } else if self.is_op("**") && args.double_star.is_none() {
                self.advance();
                args.double_star = Some(self.expression()?);
            } else if is_named && args.double_star.is_none() {
                let name = self.expect_name()?;
                self.advance();
                if args.named.iter().any(|(known, _)| *known == name) {
                    return self.fail(format!("the argument {name:?} is given twice"));
                }
                args.named.push((name, self.expression()?));
            } else if !is_named && !after_stars && args.named.is_empty() {
                args.positional.push(self.expression()?);
            } else {
                return self.fail("the arguments of a call are out of order");
            }
        }
        self.advance();
        Ok(args)
    }

    /// A filter and those behind it.
    pub(super) fn filter(&mut self, node: Option<Expr>, inline: bool) -> Result<Expr> {
        let mut node = node;
        let mut inline = inline;
        while self.is_op("|") || inline {
            if !inline {
                self.advance();
            }
            inline = false;
            let line = self.line();
            let name = self.dotted_name()?;
            self.check_filter(&name, line)?;
            let args = match self.is_op("(") {
                true => self.call_args()?,
                false => Args::default(),
            };
            let value = node.take().map(Box::new);
            node = Some(Expr { line, kind: ExprKind::Filter(value, name, Box::new(args)) });
        }
        node.map_or_else(|| self.fail("expected a filter"), Ok)
    }

    fn dotted_name(&mut self) -> Result<Name> {
        let mut name = self.expect_name()?.to_string();
        while self.skip_op(".") {
            name = format!("{name}.{}", self.expect_name()?);
        }
        Ok(name.as_str().into())
    }

    fn test(&mut self, node: Expr) -> Result<Expr> {
        let line = self.line();
        self.advance();
        let negated = self.skip_word("not");
        let name = self.dotted_name()?;
        self.check_test(&name, line);
        let mut args = Args::default();
        let is_plain_argument = match self.peek() {
            Token::Name(word) => !matches!(word.as_str(), "else" | "or" | "and"),
            Token::Str(_) | Token::Int(_) | Token::Float(_) => true,
            Token::Op(op) => matches!(*op, "[" | "{"),
            _ => false,
        };
        if self.is_op("(") {
            args = self.call_args()?;
        } else if is_plain_argument {
            if self.is_word("is") {
                return self.fail("tests can't be chained with \"is\"");
            }
            let mut argument = self.primary()?;
            while self.is_op(".") || self.is_op("[") || self.is_op("(") {
                argument = match self.is_op("(") {
                    true => self.call(argument)?,
                    false => self.subscript(argument)?,
                };
            }
            args.positional.push(argument);
        }
        let kind = ExprKind::Test(Box::new(node), name, Box::new(args));
        let test = Expr { line, kind };
        Ok(match negated {
            true => Expr { line, kind: ExprKind::Not(Box::new(test)) },
            false => test,
        })
    }
}
