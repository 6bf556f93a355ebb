"""A call of the reference's method, written out: a student is to read what a method does, and not that it is called."""

import ast
from collections.abc import Iterator
from copy import deepcopy
from typing import cast

from typing_extensions import override


def inlined(wrong: ast.FunctionDef, right: ast.FunctionDef) -> ast.FunctionDef:
    """A method with the body of the reference's in the place of its one call of `super()`, if it has one."""
    if (call := next(calls(wrong), None)) is None:
        return wrong
    return ast.fix_missing_locations(cast("ast.FunctionDef", Placed(call, bound(call, right)).visit(deepcopy(wrong))))


def calls(function: ast.FunctionDef) -> Iterator[ast.Call]:
    """Calls by `super()` of the method that a function overrides."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"super().{function.name}":
            yield node


def bound(call: ast.Call, right: ast.FunctionDef) -> list[ast.stmt]:
    """The body of a method, with what a call gives in the place of its parameters."""
    names = [argument.arg for argument in right.args.args[1:]]
    given = dict(zip(names, call.args, strict=False)) | {word.arg: word.value for word in call.keywords if word.arg}
    body = deepcopy(right.body[1:] if ast.get_docstring(right) else right.body)
    nodes = [node for each in body for node in ast.walk(each)]
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    simple: dict[str, ast.expr] = {
        name: value
        for name, value in given.items()
        if isinstance(value, ast.Name | ast.Constant) and name not in stored
    }
    assigned = [
        ast.Assign([ast.Name(name, ast.Store())], value)
        for name, value in given.items()
        if name not in simple and ast.unparse(value) != name
    ]
    return [*assigned, *(cast("ast.stmt", Renamed(simple).visit(each)) for each in body)]


class Renamed(ast.NodeTransformer):
    """Puts expressions in the place of names."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values

    @override
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return deepcopy(self.values.get(node.id, node))


class Placed(ast.NodeTransformer):
    """Puts statements in the place of the statement that has a call in it."""

    def __init__(self, call: ast.Call, body: list[ast.stmt]) -> None:
        self.called, self.body = ast.unparse(call), body

    def has(self, node: ast.AST) -> bool:
        """Whether the call is in it."""
        return any(isinstance(each, ast.Call) and ast.unparse(each) == self.called for each in ast.walk(node))

    @override
    def visit_Expr(self, node: ast.Expr) -> ast.stmt | list[ast.stmt]:
        return self.body if self.has(node) else node

    @override
    def visit_Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
        return self.with_value(node) if self.has(node) else node

    @override
    def visit_Return(self, node: ast.Return) -> ast.stmt | list[ast.stmt]:
        value = node.value
        if value is None or not self.has(value):
            return node
        if ast.unparse(value) == self.called:
            return self.body
        if isinstance(value, ast.IfExp) and ast.unparse(value.orelse) == self.called:
            return [ast.If(value.test, [ast.Return(value.body)], []), *self.body]
        return self.with_value(node)

    def with_value(self, node: ast.stmt) -> list[ast.stmt]:
        """The body but for its `return`, and what it returned in the place of the call."""
        *body, last = self.body
        assert isinstance(last, ast.Return)
        assert last.value is not None
        returned = last.value
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == ast.unparse(returned):
            return body
        called = self.called

        class Value(ast.NodeTransformer):
            @override
            def visit_Call(self, node: ast.Call) -> ast.AST:
                return returned if ast.unparse(node) == called else self.generic_visit(node)

        return [*body, cast("ast.stmt", Value().visit(node))]
