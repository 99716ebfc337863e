"""The statements of a called def in the names of its caller.

Tensors become those that are passed, results and fresh names; sizes and ``const`` parameters become expressions over
the caller's.  An index or let keeps its name unless that means something to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.syntax import Expr, Name

Declare = Callable[[syntax.Statement], syntax.Declared | None]
"""What a statement declares of its target."""


@dataclass(frozen=True, slots=True)
class Stands:
    """What the names of a called def stand for in its caller.

    ``origins`` has, for tensors that do not start at 0 in the caller, what is added to their subscripts.  ``values``
    has sizes, ``const`` parameters and numbers.  ``constants`` are the names among them that are constants of the
    called def: on the left-hand side all other bare names are indices.  ``reserved`` are names of the caller;
    ``fixed`` are its own compile-time scalars.
    """

    tensors: Mapping[str, Name]
    origins: Mapping[str, tuple[Expr, ...]]
    values: Mapping[str, Expr]
    constants: Collection[str]
    reserved: Collection[str]
    fixed: Collection[str]

    def expression(self, expr: Expr) -> Expr:
        """A dimension of the called def, which mentions no indices."""
        return _Statement(self, frozenset()).expression(expr)

    def statement(self, statement: syntax.Statement, declared: syntax.Declared | None) -> syntax.Statement:
        """A statement of the called def, whose target has the type and extents ``declared``."""
        return _Statement(self, frozenset(_names(statement))).whole(statement, declared)

    def loop(self, loop: syntax.Loop, declared: Declare, steps: Mapping[str, str] | None = None) -> syntax.Loop:
        """A block of the called def; ``steps`` are the indices around it, by what they are called there."""
        steps = steps or {}
        words = _item_names(loop).union(steps.values())
        new = loop.index.name
        while new in self.reserved or (new != loop.index.name and new in words):
            new += "_"
        own = {**steps, loop.index.name: new}
        head = _Statement(self, frozenset(words), steps)
        lower, upper = (None if bound is None else head.bound(bound) for bound in (loop.lower, loop.upper))
        body = tuple(
            self.loop(item, declared, own)
            if isinstance(item, syntax.Loop)
            else _Statement(self, frozenset(_names(item)), own).whole(item, declared(item))
            for item in loop.body
        )
        return replace(loop, index=replace(loop.index, name=new), lower=lower, upper=upper, body=body)


class _Statement:
    """One statement; ``local`` has the indices and lets met so far, which are looked up before all other names."""

    def __init__(self, stands: Stands, words: frozenset[str], steps: Mapping[str, str] | None = None) -> None:
        self.stands = stands
        self.words = words.union((steps or {}).values())
        self.local: dict[str, str] = dict(steps or {})
        self.lets: set[str] = set()
        self.is_place = False

    def whole(self, statement: syntax.Statement, declared: syntax.Declared | None) -> syntax.Statement:
        """The order is that of the checker, since what a name means depends on what was met before it."""
        if declared is not None and declared.dims is not None:
            declared = replace(declared, dims=tuple(map(self.expression, declared.dims)))
        target = statement.target
        self.is_place = True
        subscripts = None if statement.subscripts is None else tuple(map(self._target, statement.subscripts))
        self.is_place = False
        clauses = tuple(map(self._clause, statement.clauses))
        return replace(
            statement,
            target=self._tensor(target),
            subscripts=subscripts,
            value=self.expression(statement.value),
            equivalent=None,
            clauses=clauses,
            declared=declared,
        )

    def bound(self, expr: Expr) -> Expr:
        """A bound of a block."""
        return self._places((expr,))[0]

    def _tensor(self, name: Name) -> Name:
        new = self.stands.tensors[name.name]
        return new if new.span != syntax.NOWHERE else replace(new, span=name.span)

    def _target(self, subscript: Expr) -> Expr:
        """A left-hand subscript, where a bare name is an index unless it is a compile-time scalar."""
        if isinstance(subscript, Name) and subscript.name not in self.stands.constants:
            return self._enter(subscript)
        new = self.expression(subscript)
        if isinstance(subscript, Name) and isinstance(new, Name) and new.name not in self.stands.fixed:
            return syntax.Binary("+", new, syntax.Number("0", new.span), new.span)
        return new

    def _enter(self, name: Name) -> Name:
        """An index or let from here on."""
        if name.name not in self.local:
            new = name.name
            while new in self.stands.reserved or (new != name.name and new in self.words):
                new += "_"
            self.local[name.name] = new
        return replace(name, name=self.local[name.name])

    def _clause(self, clause: syntax.Clause) -> syntax.Clause:
        match clause:
            case syntax.Range():
                index = self._enter(clause.index)
                lower, upper = self._places((clause.lower, clause.upper))
                return replace(clause, index=index, lower=lower, upper=upper)
            case syntax.Let():
                value = self.expression(clause.value)
                self.lets.add(clause.name.name)
                return replace(clause, name=self._enter(clause.name), value=value)
            case syntax.Exists():
                return replace(clause, read=self.expression(clause.read))
            case syntax.Order():
                return replace(clause, index=self._enter(clause.index))

    def expression(self, expr: Expr) -> Expr:
        match expr:
            case Name():
                return self._name(expr)
            case syntax.Number():
                return expr
            case syntax.Apply():
                name = expr.function.name
                if name not in self.stands.tensors:
                    return replace(expr, arguments=self._all(expr.arguments))
                arguments = self._shifted(name, self._places(expr.arguments))
                return replace(expr, function=self._read(expr.function), arguments=arguments)
            case syntax.Boundary():
                tensor, *values = expr.arguments
                assert isinstance(tensor, Name)
                arguments = (self._read(tensor), *self._all(tuple(values)))
                subscripts = self._shifted(tensor.name, self._places(expr.subscripts))
                return replace(expr, arguments=arguments, subscripts=subscripts)
            case syntax.Cast() | syntax.Unary():
                return replace(expr, operand=self.expression(expr.operand))
            case syntax.Binary():
                return self._chain(expr)
            case syntax.Conditional():
                return replace(
                    expr,
                    condition=self.expression(expr.condition),
                    then=self.expression(expr.then),
                    otherwise=self.expression(expr.otherwise),
                )
            case syntax.Named():
                return replace(expr, value=self.expression(expr.value))

    def _chain(self, expr: syntax.Binary) -> Expr:
        """A run of left-associative operators, without recursing along it."""
        links = [expr]
        while isinstance(links[-1].lhs, syntax.Binary):
            links.append(links[-1].lhs)
        result = self.expression(links[-1].lhs)
        for link in reversed(links):
            result = self._folded(link, replace(link, lhs=result, rhs=self.expression(link.rhs)))
        return result

    def _folded(self, old: syntax.Binary, new: syntax.Binary) -> Expr:
        """Without what constants of the def leave of a subscript or range that adds nothing: ``1 * h + kh - 0``."""
        known = [
            _number(side) if self._has_constants(was) else None
            for was, side in ((old.lhs, new.lhs), (old.rhs, new.rhs))
        ]
        match new.op, known:
            case _ if not self.is_place or known == [None, None]:
                return new
            case ("+" | "-" | "/", [_, 0 | 1 as right]) if right == (new.op == "/") and self._is_plain(old.lhs):
                return new.lhs
            case ("*", [_, 1]) if self._is_plain(old.lhs):
                return new.lhs
            case ("*", [1, _]) | ("+", [0, _]) if self._is_plain(old.rhs):
                return new.rhs
            case ("*", _) if 0 in known and self._is_plain(old.lhs) and self._is_plain(old.rhs):
                return syntax.Number("0", new.span)
        return new

    def _has_constants(self, expr: Expr) -> bool:
        return bool(_words(expr) & {*self.stands.constants} - {*self.local})

    def _is_plain(self, expr: Expr) -> bool:
        """Whether an expression is of indices, sizes and constants, all of which are 32 or 64 bits wide."""
        if isinstance(expr, Name):
            return expr.name not in self.lets and expr.name not in self.stands.tensors
        if isinstance(expr, syntax.Number | syntax.Unary | syntax.Binary):
            return all(map(self._is_plain, syntax.children(expr)))
        return False

    def _places(self, expressions: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Subscripts or bounds."""
        before, self.is_place = self.is_place, True
        places = self._all(expressions)
        self.is_place = before
        return places

    def _name(self, name: Name) -> Expr:
        if name.name in self.local:
            return replace(name, name=self.local[name.name])
        if name.name in self.stands.values:
            return replace(self.stands.values[name.name], span=name.span)
        if name.name in self.stands.tensors:
            return self._read(name)
        return self._enter(name)

    def _read(self, name: Name) -> Name:
        return replace(self.stands.tensors[name.name], span=name.span)

    def _shifted(self, tensor: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        origin = self.stands.origins.get(tensor)
        if origin is None:
            return subscripts
        return tuple(moved(s, o) for s, o in zip(subscripts, origin, strict=True))

    def _all(self, expressions: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(map(self.expression, expressions))


def _number(expr: Expr) -> int | None:
    """The value of an integer literal."""
    return int(expr.text) if isinstance(expr, syntax.Number) and expr.text.isdecimal() else None


def moved(subscript: Expr, origin: Expr) -> Expr:
    """Where an element is in a tensor that starts at ``origin``, by its place from the start."""
    match origin:
        case syntax.Number(text="0"):
            return subscript
        case syntax.Unary(op="-"):
            return syntax.Binary("-", subscript, origin.operand, subscript.span)
    return syntax.Binary("+", subscript, origin, subscript.span)


def words_of(definition: syntax.Definition) -> set[str]:
    """Every identifier of a definition."""
    found = {definition.name.name}
    for parameter in (*definition.inputs, *definition.outputs):
        found.add(parameter.name.name)
        for dim in parameter.dims or ():
            found |= _words(dim)
    return found.union(*map(_item_names, definition.body))


def _item_names(item: syntax.Statement | syntax.Loop) -> set[str]:
    if isinstance(item, syntax.Statement):
        return _names(item)
    bounds = [_words(bound) for bound in (item.lower, item.upper) if bound is not None]
    return {item.index.name}.union(*bounds, *map(_item_names, item.body))


def functions_of(definition: syntax.Definition) -> set[str]:
    """The names that stand before parentheses, and those of tensors that are read outside their elements."""
    found: set[str] = set()
    stack = list(syntax.expressions(definition))
    while stack:
        expr = stack.pop()
        if isinstance(expr, syntax.Apply):
            found.add(expr.function.name)
        elif isinstance(expr, syntax.Boundary):
            found.add(str(expr.arguments[0]))
        stack.extend(syntax.children(expr))
    return found


def names_read(statement: syntax.Statement) -> set[str]:
    """Every identifier of a statement but its target, and that too where the statement adds to it."""
    found = _names(replace(statement, others=()))
    reads = _names(replace(statement, target=Name(""), others=()))
    return found if statement.operator in ("+=", "*=", "min=", "max=") else reads


def _names(statement: syntax.Statement) -> set[str]:
    found = {statement.target.name, *(name.name for name in statement.others)}
    exprs = [*(statement.subscripts or ()), statement.value]
    exprs += (statement.declared.dims or ()) if statement.declared else ()
    for clause in statement.clauses:
        match clause:
            case syntax.Range():
                found.add(clause.index.name)
                exprs += (clause.lower, clause.upper)
            case syntax.Let():
                found.add(clause.name.name)
                exprs.append(clause.value)
            case syntax.Exists():
                exprs.append(clause.read)
            case syntax.Order():
                found.add(clause.index.name)
    return found.union(*map(_words, exprs))


def _words(root: Expr) -> set[str]:
    found: set[str] = set()
    stack = [root]
    while stack:
        expr = stack.pop()
        if isinstance(expr, Name):
            found.add(expr.name)
        elif isinstance(expr, syntax.Apply):
            found.add(expr.function.name)
        elif isinstance(expr, syntax.Named):
            found.add(expr.name.name)
        stack.extend(syntax.children(expr))
    return found
