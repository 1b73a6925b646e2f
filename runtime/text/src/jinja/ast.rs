//! A parsed template. Names are resolved to scopes by `scope`.

use std::sync::Arc;

pub type Name = Arc<str>;

#[derive(Debug, Clone)]
pub enum Const {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
}

#[derive(Debug)]
pub struct Expr {
    pub line: u32,
    pub kind: ExprKind,
}

#[derive(Debug)]
pub enum ExprKind {
    Const(Const),
    Name(Name),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Unary(char, Box<Expr>),
    Binary(BinOp, Box<Expr>, Box<Expr>),
    Concat(Vec<Expr>),
    Compare(Box<Expr>, Vec<(CmpOp, Expr)>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    /// value, test, otherwise
    Cond(Box<Expr>, Box<Expr>, Option<Box<Expr>>),
    Getattr(Box<Expr>, Name),
    Getitem(Box<Expr>, Box<Expr>),
    Slice(Option<Box<Expr>>, Option<Box<Expr>>, Option<Box<Expr>>),
    Call(Box<Expr>, Box<Args>),
    /// The value is absent where a block is filtered.
    Filter(Option<Box<Expr>>, Name, Box<Args>),
    Test(Box<Expr>, Name, Box<Args>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinOp {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CmpOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}

#[derive(Debug, Default)]
pub struct Args {
    pub positional: Vec<Expr>,
    pub named: Vec<(Name, Expr)>,
    pub star: Option<Expr>,
    pub double_star: Option<Expr>,
}

#[derive(Debug)]
pub enum Target {
    Name(Name),
    /// `ns.attribute`
    Attribute(Name, Name),
    Tuple(Vec<Target>),
}

/// How a name of a scope gets its first value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    Parameter,
    /// From what the caller of the template handed in.
    Resolve,
    /// From the scope around.
    Alias,
    Undefined,
}

pub type Names = Vec<(Name, Load)>;

#[derive(Debug)]
pub struct Stmt {
    pub line: u32,
    pub kind: StmtKind,
}

#[derive(Debug)]
pub enum StmtKind {
    Text(String),
    Print(Expr),
    For(Arc<ForNode>),
    If(IfNode),
    Macro(Arc<MacroNode>),
    Call(Expr, Arc<MacroNode>),
    FilterBlock(Expr, Body),
    Set(Target, Expr),
    SetBlock(Target, Option<Expr>, Body),
    With(Vec<(Target, Expr)>, Body),
    Break,
    Continue,
}

/// Statements in a scope of their own.
#[derive(Debug, Default)]
pub struct Body {
    pub names: Names,
    pub stmts: Vec<Stmt>,
}

#[derive(Debug)]
pub struct ForNode {
    pub target: Target,
    pub iter: Expr,
    pub test: Option<Expr>,
    pub test_names: Names,
    pub recursive: bool,
    pub body: Body,
    pub otherwise: Option<Body>,
}

#[derive(Debug)]
pub struct IfNode {
    pub branches: Vec<(Expr, Vec<Stmt>)>,
    pub otherwise: Vec<Stmt>,
}

#[derive(Debug)]
pub struct MacroNode {
    /// Absent for the body of a call block.
    pub name: Option<Name>,
    pub args: Vec<Name>,
    /// Of the last arguments.
    pub defaults: Vec<Expr>,
    pub body: Body,
    pub uses_caller: bool,
    pub uses_kwargs: bool,
    pub uses_varargs: bool,
}
