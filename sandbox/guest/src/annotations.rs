//! Annotations evaluated where they stand, as CPython does up to 3.13: a missing `from typing import List` is the commonest
//! mistake in typed programs of models, and a later Python would pass over it in silence.

use ruff_text_size::Ranged;
use rustpython_vm::compiler::ast::{AtomicNodeIndex, ExceptHandler, Expr, Mod, Parameters, Stmt, StmtExpr, StmtFunctionDef, Suite};

/// Whether a line of source looks as if it had an annotation: most programs have none and need not be read again.
pub(crate) fn may_stand_in(line: &str) -> bool {
    let line = line.trim();
    if line.starts_with("def ") || line.starts_with("async def ") {
        return line.contains("->") || line.matches(':').count() > 1 || !line.ends_with(':');
    }
    let Some((name, rest)) = line.split_once(':') else { return false };
    let keyword = ["else", "try", "finally"].contains(&name);
    !keyword && !rest.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_.".contains(c))
}

/// Puts every annotation before its function, or after its variable, as a statement of its own. Says whether there was one.
pub(crate) fn evaluate(module: &mut Mod) -> bool {
    let Mod::Module(module) = module else { return false };
    let lazy = |statement: &Stmt| {
        matches!(statement, Stmt::ImportFrom(import)
            if import.module.as_ref().is_some_and(|name| name.as_str() == "__future__")
                && import.names.iter().any(|alias| alias.name.as_str() == "annotations"))
    };
    !module.body.iter().any(lazy) && block(&mut module.body, false)
}

/// A block of statements, those of a function or not: a function does not evaluate the annotations of its variables.
fn block(body: &mut Suite, function: bool) -> bool {
    let mut found = false;
    let mut out = Suite::with_capacity(body.len());
    for mut statement in std::mem::take(body) {
        found |= inner(&mut statement, function);
        match &statement {
            Stmt::FunctionDef(def) => {
                let annotations = of_function(def);
                found |= !annotations.is_empty();
                out.extend(annotations.into_iter().map(alone));
                out.push(statement);
            }
            Stmt::AnnAssign(assign) if !function && is_evaluated(&assign.annotation) => {
                let annotation = alone((*assign.annotation).clone());
                found = true;
                out.push(statement);
                out.push(annotation);
            }
            _ => out.push(statement),
        }
    }
    *body = out;
    found
}

fn inner(statement: &mut Stmt, function: bool) -> bool {
    match statement {
        Stmt::FunctionDef(def) => block(&mut def.body, true),
        Stmt::ClassDef(class) => block(&mut class.body, false),
        Stmt::If(branch) => {
            let mut found = block(&mut branch.body, function);
            for clause in &mut branch.elif_else_clauses {
                found |= block(&mut clause.body, function);
            }
            found
        }
        Stmt::For(turn) => block(&mut turn.body, function) | block(&mut turn.orelse, function),
        Stmt::While(turn) => block(&mut turn.body, function) | block(&mut turn.orelse, function),
        Stmt::With(with) => block(&mut with.body, function),
        Stmt::Try(attempt) => {
            let mut found = block(&mut attempt.body, function);
            for ExceptHandler::ExceptHandler(handler) in &mut attempt.handlers {
                found |= block(&mut handler.body, function);
            }
            found | block(&mut attempt.orelse, function) | block(&mut attempt.finalbody, function)
        }
        _ => false,
    }
}

fn of_function(def: &StmtFunctionDef) -> Vec<Expr> {
    let Parameters { posonlyargs, args, vararg, kwonlyargs, kwarg, .. } = &*def.parameters;
    let plain = posonlyargs.iter().chain(args).map(|parameter| &parameter.parameter);
    let named = kwonlyargs.iter().map(|parameter| &parameter.parameter);
    let parameters = plain.chain(vararg.as_deref()).chain(named).chain(kwarg.as_deref());
    let annotations = parameters.filter_map(|parameter| parameter.annotation.as_deref()).chain(def.returns.as_deref());
    // A generic function's annotations may name its own parameters.
    annotations.filter(|annotation| def.type_params.is_none() && is_evaluated(annotation)).cloned().collect()
}

/// A string is evaluated to itself; as a statement it could become a docstring. A starred one is no expression.
fn is_evaluated(annotation: &Expr) -> bool {
    !matches!(annotation, Expr::StringLiteral(_) | Expr::NoneLiteral(_) | Expr::Starred(_))
}

fn alone(value: Expr) -> Stmt {
    Stmt::Expr(StmtExpr { node_index: AtomicNodeIndex::NONE, range: value.range(), value: Box::new(value) })
}
