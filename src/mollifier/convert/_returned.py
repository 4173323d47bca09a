"""Find the children that compute what a forward returns by reading its source, for forwards that were neither traced nor run.

The source is executed with sets of children in place of tensors. All branches are taken, and what is not understood counts as returned.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Iterable
from types import FunctionType

from torch import nn

from mollifier.convert._read import NOTHING, Arguments, Names, Reader, Value, join
from mollifier.convert._source import _is_activation, function_attributes

# What these give depends on shapes and types, and not on values.
_ABOUT = {"len", "range", "isinstance", "type", "hasattr", "print"}
_PROPERTIES = {"shape", "size", "dim", "ndim", "device", "dtype", "numel", "is_cuda", "requires_grad", "training"}


def returned_children(module: nn.Module) -> set[str]:
    """Return the children whose result a forward may return, alone or as a part of something else, and those that it does not use.

    What a forward does not use is called in other ways, as in a model without a forward. The last module of a container that is looped
    over has its path in the container. A function attribute counts as a child.

    >>> returned_children(nn.Transformer(8, 2, batch_first=True))  # output = self.decoder(tgt, memory, …); return output
    {'decoder'}
    """
    reader = Reader(module, _Method)
    for _ in range(2):  # what it keeps in an attribute may be read before
        found = reader.call("forward", Arguments())
    return {*found.names, *((reader.children | function_attributes(module).keys()) - reader.used)}


class _Method:
    """One run of a method, or of a function inside it.

    Attributes:
        returned: What it returns or yields.
    """

    def __init__(self, reader: Reader, method: FunctionType, owner: type, me: str) -> None:
        self.returned = NOTHING
        self._reader, self._method, self._owner, self._me = reader, method, owner, me
        self._left: list[list[Names]] = []  # what the names are where a loop is left or continued early

    def run(self, body: list[ast.stmt], names: Names | None) -> Names | None:
        """Execute statements, and return what the names are afterwards, or None if the end is not reached."""
        for statement in body:
            if names is None:
                return None
            names = self._statement(statement, names)
        return names

    def _statement(self, node: ast.stmt, names: Names) -> Names | None:
        match node:
            case ast.Return(value=value):
                self.returned |= self._value(value, names)
                return None
            case ast.Raise(exc=value):
                self._value(value, names)
                return None
            case ast.Break() | ast.Continue():
                self._left[-1].append(names)
                return None
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value, names)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, value, names)
            case ast.AugAssign(target=target, value=value):
                self._assign(target, self._value(target, names) | self._value(value, names), names)
            case ast.Expr(value=value):
                self._value(value, names)
                if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):  # results.append(…)
                    self._write(value.func.value, self._arguments(value, names).all, names)
            case ast.Assert(test=value):
                self._value(value, names)
            case ast.If(test=test, body=body, orelse=other):
                self._value(test, names)
                return join(self.run(body, dict(names)), self.run(other, dict(names)))
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._loop(node, names)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    entered = self._value(item.context_expr, names)
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, entered, names)
                return self.run(body, names)
            case (
                ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last)
                | ast.TryStar(body=body, handlers=handlers, orelse=other, finalbody=last)
            ):
                after = self.run(body, dict(names))
                caught = [self.run(handler.body, join(dict(names), after)) for handler in handlers]
                done = join(self.run(other, after), *caught)
                end = self.run(last, dict(names) if done is None else done)
                return None if done is None else end
            case ast.Match(subject=subject, cases=cases):
                found = self._value(subject, names)
                ends = [self.run(case.body, names | _captured(case.pattern, found)) for case in cases]
                return join(names, *ends)
            case ast.FunctionDef(name=name, body=body) | ast.AsyncFunctionDef(name=name, body=body):
                names[name] = self._inside(body, names)
        return names

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, names: Names) -> Names | None:
        """Repeat a loop until no name can become anything else, and return what the names are after its last pass."""
        over = self._value(node.test if isinstance(node, ast.While) else node.iter, names)
        last = over if isinstance(node, ast.While) else self._last_item(node.iter, over)
        self._left.append([])
        while (more := join(names, self._pass(node, over, names), *self._left[-1])) != names:
            assert more is not None
            names = more
        end = self._pass(node, last, names)
        skipped = None if over.children else names  # a loop over children has at least one pass
        left = self._left.pop()
        return join(self.run(node.orelse, join(end, skipped, *left)), *left)

    def _pass(self, node: ast.For | ast.AsyncFor | ast.While, item: Value, names: Names) -> Names | None:
        names = dict(names)
        if not isinstance(node, ast.While):
            self._assign(node.target, item, names)
        return self.run(node.body, names)

    def _last_item(self, node: ast.expr, over: Value) -> Value:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "enumerate" and node.args:
            node = node.args[0]
        direct = isinstance(node, ast.Attribute) and self._is_me(node.value)
        return self._reader.item(over, -1) if direct else over

    def _inside(self, body: list[ast.stmt], names: Names) -> Value:
        """Return what a function inside the method returns; what it is given is added where it is called."""
        function = _Method(self._reader, self._method, self._owner, self._me)
        function.run(body, dict(names))
        return Value(function.returned.names)

    def _bind(self, target: ast.expr, node: ast.expr, names: Names) -> None:
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(node, (ast.Tuple, ast.List)):
            starred = any(isinstance(each, ast.Starred) for each in (*target.elts, *node.elts))
            if not starred and len(target.elts) == len(node.elts):
                values = [self._value(each, names) for each in node.elts]  # before any of them is assigned: a, b = b, a
                for each, value in zip(target.elts, values, strict=True):
                    self._assign(each, value, names)
                return
        self._assign(target, self._value(node, names), names)

    def _assign(self, target: ast.expr, value: Value, names: Names) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for each in target.elts:
                self._assign(each, value, names)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, value, names)
        else:
            self._write(target, value, names)

    def _write(self, target: ast.expr, value: Value, names: Names) -> None:
        """Add a value to what a name or an attribute of the module contains: out[0] = …, out.part = …, out.append(…)."""
        while isinstance(target, (ast.Attribute, ast.Subscript)):
            if isinstance(target, ast.Attribute) and self._is_me(target.value):
                self._reader.keep(target.attr, value)
                return
            target = target.value
        if isinstance(target, ast.Name) and target.id in names:
            names[target.id] |= value

    def _value(self, node: ast.AST | None, names: Names) -> Value:
        match node:
            case ast.Name(id=name):
                return self._reader.all if name == self._me else names.get(name, NOTHING)
            case ast.Attribute(value=value, attr=name):
                found = self._reader.read(name) if self._is_me(value) else self._value(value, names)
                return NOTHING if name in _PROPERTIES else found
            case ast.Call():
                return self._call(node, names)
            case ast.NamedExpr(target=target, value=value):
                self._bind(target, value, names)
                return self._value(target, names)
            case ast.IfExp(test=test, body=body, orelse=other):
                self._value(test, names)
                return self._value(body, names) | self._value(other, names)
            case ast.Subscript(value=value, slice=index):
                self._value(index, names)
                return self._reader.item(self._value(value, names), _constant(index))
            case ast.Lambda(body=value):
                return self._inside([ast.Return(value)], names)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                names = dict(names)
                for each in node.generators:
                    self._assign(each.target, self._value(each.iter, names), names)
                    self._union(each.ifs, names)
                parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
                return self._union(parts, names)
            case ast.Yield(value=value) | ast.YieldFrom(value=value):
                self.returned |= self._value(value, names)
                return NOTHING
            case None:
                return NOTHING
        return self._union(ast.iter_child_nodes(node), names)

    def _union(self, nodes: Iterable[ast.AST], names: Names) -> Value:
        return functools.reduce(operator.or_, [self._value(each, names) for each in nodes], NOTHING)

    def _call(self, node: ast.Call, names: Names) -> Value:
        called, arguments = node.func, self._arguments(node, names)
        if isinstance(called, ast.Attribute) and self._is_me(called.value):
            return self._reader.call(called.attr, arguments)
        if isinstance(called, ast.Attribute) and _is_super(called.value):
            return self._reader.call(called.attr, arguments, self._owner)
        target = self._value(called, names)
        name = called.attr if isinstance(called, ast.Attribute) else ""
        about = name in _PROPERTIES or (isinstance(called, ast.Name) and called.id in _ABOUT)
        if about or _is_activation(called, self._method):  # an activation is returned itself, and stays plain
            return NOTHING
        return self._reader.result(target, arguments.all, name)

    def _arguments(self, node: ast.Call, names: Names) -> Arguments:
        spread = any(isinstance(each, ast.Starred) for each in node.args) or any(w.arg is None for w in node.keywords)
        return Arguments(
            [self._value(each, names) for each in node.args],
            {word.arg or "": self._value(word.value, names) for word in node.keywords},
            spread,
        )

    def _is_me(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self._me


def _captured(pattern: ast.pattern, value: Value) -> Names:
    found = [getattr(node, "name", None) or getattr(node, "rest", None) for node in ast.walk(pattern)]
    return {name: value for name in found if name}


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _constant(node: ast.expr) -> int | str | None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None
    return value if isinstance(value, (int, str)) else None
