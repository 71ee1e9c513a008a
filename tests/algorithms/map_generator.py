"""Random programs in the language of ``map_in_client``: most of them fit, some do not, on purpose.

A generated text always passes the allow-list; the compiler then accepts or refuses it. Lengths are mostly drawn to
be equal and indices to be in range, so that both sides of every check are visited.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

WIDTH, STATE_SIZE = 4, 3
UNARY = [
    "np.exp",
    "np.tanh",
    "np.sin",
    "np.sqrt",
    "np.abs",
    "np.log1p",
    "np.square",
    "np.sign",
    "np.floor",
    "np.rint",
    "np.expm1",
    "np.arctan",
    "np.cosh",
]
BINARY = ["np.maximum", "np.minimum", "np.hypot", "np.arctan2", "np.power"]
REDUCTIONS = ["np.sum", "np.prod", "np.max", "np.min", "np.mean", "np.var", "np.std"]
INDEX_REDUCTIONS = ["np.argmax", "np.argmin", "np.sum"]
SCALAR_MATH = ["math.exp", "math.tanh", "math.erf", "math.atan", "math.sqrt", "math.fabs", "math.lgamma"]


@dataclass
class Names:
    """What can be read at some point of the text."""

    numbers: list[str] = field(default_factory=lambda: ["state[0][1]", "state[1]", "self.HALF", "np.pi"])
    whole: list[str] = field(default_factory=lambda: ["len(record)", "self.K"])
    arrays: dict[str, int] = field(default_factory=lambda: {"record": WIDTH, "state[0]": STATE_SIZE})
    own: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Names:
        return Names(list(self.numbers), list(self.whole), dict(self.arrays), dict(self.own))


class Generator:
    """One program per call of :meth:`body`."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.count = 0

    def body(self) -> str:
        self.count, self.lines = 0, []
        names = Names()
        for _ in range(self.r.randint(2, 7)):
            self.statement(names, 0)
        length = self.r.choice([2, 2, 2, 3])
        self.add(0, f"return {self.array(names, length, 2)}")
        return "\n".join(self.lines)

    def add(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def new(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # -- statements ---------------------------------------------------------------------------------------------------

    def statement(self, n: Names, depth: int) -> None:
        kinds = [
            *(
                [
                    "number",
                    "array",
                    "array",
                    "element",
                    "whole",
                    "slice",
                    "in_place",
                    "number_in_place",
                    "mask",
                    "unpack",
                    "again",
                    "tuple",
                ]
            ),
            *(["if", "for"] if depth < 2 else []),
        ]
        getattr(self, f"_{self.r.choice(kinds)}")(n, depth)

    def _number(self, n: Names, depth: int) -> None:
        name = self.new("x")
        self.add(depth, f"{name} = {self.number(n, 3)}")
        n.numbers.append(name)

    def _whole(self, n: Names, depth: int) -> None:
        name = self.new("i")
        self.add(depth, f"{name} = {self.whole(n, 2)}")
        n.whole.append(name)

    def _array(self, n: Names, depth: int) -> None:
        name, length = self.new("a"), self.length(n)
        self.add(depth, f"{name} = {self.array(n, length, 2)}")
        n.arrays[name] = length
        n.own[name] = length

    def _unpack(self, n: Names, depth: int) -> None:
        a, b = self.new("x"), self.new("x")
        self.add(depth, f"{a}, {b} = {self.number(n, 1)}, {self.number(n, 1)}")
        self.add(depth, f"{a}, {b} = {b}, {a}")
        n.numbers += [a, b]

    def _again(self, n: Names, depth: int) -> None:
        """A variable assigned from itself."""
        if (found := self.target(n)) is not None:
            name, length = found
            value = self.pick(
                [
                    lambda: f"{name}[::-1]",
                    lambda: self.array(n, length, 1),
                    lambda: f"np.concatenate(({name}[1:], {name}[:1]))" if length else name,
                    lambda: f"{name} if {self.test(n)} else {name}[::-1]",
                ]
            )
            self.add(depth, f"{name} = {value}")

    def _tuple(self, n: Names, depth: int) -> None:
        """A tuple of numbers, turned around and added up."""
        name = self.new("t")
        self.add(depth, f"{name} = ({self.number(n, 1)}, {self.number(n, 1)})")
        self.add(depth, f"{name} = ({name}[1], {name}[0] + {name}[1])")
        n.numbers += [f"{name}[0]", f"{name}[1]"]

    def target(self, n: Names) -> tuple[str, int] | None:
        return self.r.choice(list(n.own.items())) if n.own else None

    def _element(self, n: Names, depth: int) -> None:
        if (found := self.target(n)) is not None:
            operator = self.r.choice(["=", "+=", "*=", "-=", "/="])
            self.add(depth, f"{found[0]}[{self.index(n, found[1])}] {operator} {self.number(n, 2)}")

    def _slice(self, n: Names, depth: int) -> None:
        if (found := self.target(n)) is not None:
            name, length = found
            low = self.r.randint(0, length)
            high = self.r.randint(low, length + (self.r.random() < 0.1))
            operator = self.r.choice(["=", "+=", "*="])
            fits = self.array(n, self.about(high - low), 1)
            self.add(depth, f"{name}[{low}:{high}] {operator} {self.r.choice([fits, self.number(n, 1)])}")

    def _in_place(self, n: Names, depth: int) -> None:
        if (found := self.target(n)) is not None:
            operator = self.r.choice(["+=", "-=", "*=", "/="])
            value = self.r.choice([self.array(n, self.about(found[1]), 1), self.number(n, 1)])
            self.add(depth, f"{found[0]} {operator} {value}")

    def _mask(self, n: Names, depth: int) -> None:
        if (found := self.target(n)) is not None:
            mask = f"{self.array(n, self.about(found[1]), 1)} > {self.number(n, 1)}"
            self.add(depth, f"{found[0]}[{mask}] {self.r.choice(['=', '+='])} {self.number(n, 1)}")

    def _number_in_place(self, n: Names, depth: int) -> None:
        own = [x for x in n.numbers if x.startswith("x")]
        if own:
            self.add(depth, f"{self.r.choice(own)} {self.r.choice(['+=', '*=', '-='])} {self.number(n, 2)}")

    def _if(self, n: Names, depth: int) -> None:
        self.add(depth, f"if {self.test(n)}:")
        self.block(n, depth + 1)
        if self.r.random() < 0.5:
            self.add(depth, "else:")
            self.block(n, depth + 1)

    def _for(self, n: Names, depth: int) -> None:
        counter = self.new("k")
        turns = self.r.choice(["len(record)", "3", "2", f"min({self.whole(n, 1)}, 5)", f"1, {self.whole(n, 0)}"])
        self.add(depth, f"for {counter} in range({turns}):")
        inner = n.copy()
        inner.whole += [counter] * 4
        self.block(inner, depth + 1)
        if self.r.random() < 0.2:
            self.add(depth + 1, f"if {self.test(inner)}:")
            self.add(depth + 2, self.r.choice(["break", "continue"]))

    def block(self, n: Names, depth: int) -> None:
        inner = n.copy()
        self.add(depth, "pass")
        for _ in range(self.r.randint(1, 3)):
            self.statement(inner, depth)

    # -- expressions --------------------------------------------------------------------------------------------------

    def length(self, n: Names) -> int:
        return self.r.choice([1, 2, 2, 3, 3, 4, 4, 5, 9])

    def about(self, length: int) -> int:
        return length if self.r.random() < 0.94 else self.r.randint(0, 12)

    def index(self, n: Names, length: int, depth: int = 1) -> str:
        draw = self.r.random()
        if draw < 0.6:
            return str(self.r.randint(-length, length - 1)) if length else "0"
        if draw < 0.63:
            return str(self.r.choice([length, -length - 1, 10**6]))
        if draw < 0.9:
            return f"{self.whole(n, depth)} % {max(1, self.about(length))}"
        return self.whole(n, depth)

    def pick(self, choices: list[Callable[[], str]]) -> str:
        return self.r.choice(choices)()

    def whole(self, n: Names, depth: int) -> str:
        if depth <= 0 or self.r.random() < 0.4:
            return self.r.choice([*n.whole, *n.whole, "0", "1", "2", "7"])
        w, x = (lambda: self.whole(n, depth - 1)), (lambda: self.number(n, depth - 1))
        name, _ = self.r.choice(list(n.arrays.items()))
        return self.pick(
            [
                lambda: f"({w()} + {w()})",
                lambda: f"({w()} * {w()})",
                lambda: f"({w()} - {w()})",
                lambda: f"({w()} // {w()})",
                lambda: f"({w()} % {w()})",
                lambda: f"int({x()})",
                lambda: f"int({x()} * 1e300)",
                lambda: f"{self.r.choice(INDEX_REDUCTIONS)}({name})",
                lambda: f"min({w()}, {w()})",
                lambda: f"abs({w()})",
            ]
        )

    def number(self, n: Names, depth: int) -> str:
        if depth <= 0 or self.r.random() < 0.3:
            return self.r.choice([*n.numbers, self.element(n, 0), self.element(n, 0), "0.5", "2.0", "-1.25"])
        x = lambda: self.number(n, depth - 1)  # noqa: E731
        name, length = self.r.choice(list(n.arrays.items()))
        same = lambda: self.array(n, self.about(length), depth - 1)  # noqa: E731
        return self.pick(
            [
                lambda: f"({x()} + {x()})",
                lambda: f"({x()} - {x()})",
                lambda: f"({x()} * {x()})",
                lambda: f"({x()} / {x()})",
                lambda: f"({x()} // {x()})",
                lambda: f"({x()} % {x()})",
                lambda: f"({x()} ** 2)",
                lambda: f"(-{x()})",
                lambda: f"{self.r.choice(UNARY)}({x()})",
                lambda: f"{self.r.choice(SCALAR_MATH)}({x()})",
                lambda: f"{self.r.choice(BINARY)}({x()}, {x()})",
                lambda: f"{self.r.choice(REDUCTIONS)}({name})",
                lambda: f"({name} @ {same()})",
                lambda: f"({x()} if {self.test(n, depth - 1)} else {x()})",
                lambda: f"max({x()}, {x()})",
                lambda: f"self.EDGES[{self.index(n, 3, depth - 1)}]",
                lambda: self.element(n, depth),
                lambda: f"np.searchsorted(self.EDGES, {x()})",
                lambda: f"np.outer({name}, {same()})[{self.index(n, length, 0)}, {self.index(n, length, 0)}]",
            ]
        )

    def element(self, n: Names, depth: int) -> str:
        name, length = self.r.choice(list(n.arrays.items()))
        return f"{name}[{self.index(n, length, depth - 1) if depth else self.r.randrange(max(length, 1))}]"

    def test(self, n: Names, depth: int = 1) -> str:
        x = lambda: self.number(n, depth)  # noqa: E731
        sign = self.r.choice(["<", ">", "<=", "==", "!="])
        name, _ = self.r.choice(list(n.arrays.items()))
        return self.pick(
            [
                lambda: f"{x()} {sign} {x()}",
                lambda: f"{x()} {sign} {x()} {sign} 2.0",
                lambda: f"({x()} {sign} {x()} and {x()} > 0.0)",
                lambda: f"not {x()} {sign} {x()}",
                lambda: f"np.any({name} > {x()})",
                lambda: f"{self.whole(n, depth)} {sign} {self.whole(n, depth)}",
            ]
        )

    def array(self, n: Names, length: int, depth: int) -> str:
        x = lambda: self.number(n, min(1, depth - 1))  # noqa: E731
        named: list[Callable[[], str]] = [lambda k=k: k for k, size in n.arrays.items() if size == length]
        made: list[Callable[[], str]] = [
            lambda: f"np.zeros({length})",
            lambda: f"np.full({length}, {x()})",
            lambda: f"np.ones({length})",
            lambda: f"np.array([{', '.join(x() for _ in range(length))}])" if length else "np.zeros(0)",
        ]
        longer = [(name, size) for name, size in n.arrays.items() if size > length]
        if longer:
            name, size = self.r.choice(longer)
            low = self.r.randint(0, size - length)
            made += [
                lambda: f"{name}[{low}:{low + length}]",
                lambda: f"{name}[{low}:][:{length}]",
                lambda: f"{name}[{low - size}:][:{length}]",
            ]
        if depth <= 0 or self.r.random() < 0.25:
            return self.pick([*named, *named, *made])
        a = lambda: self.array(n, self.about(length), depth - 1)  # noqa: E731
        b = lambda: self.array(n, length, depth - 1)  # noqa: E731
        return self.pick(
            [
                *named,
                *made,
                lambda: f"({a()} + {b()})",
                lambda: f"({a()} * {b()})",
                lambda: f"({a()} - {x()})",
                lambda: f"({a()} / {b()})",
                lambda: f"({b()} // {x()})",
                lambda: f"({b()} ** 2)",
                lambda: f"{self.r.choice(UNARY)}({b()})",
                lambda: f"{self.r.choice(BINARY)}({a()}, {b()})",
                lambda: f"np.where({a()} > {x()}, {b()}, {x()})",
                lambda: f"np.clip({a()}, {x()}, {self.pick([b, x])})",
                lambda: f"np.cumsum({b()})",
                lambda: f"{b()}[::-1]",
                lambda: f"np.outer({b()}, {b()}) @ {a()}",
                lambda: f"np.sum(np.outer({b()}, {a()}), axis=1)",
                lambda: f"({a()} if {self.test(n, depth - 1)} else {b()})",
                lambda: f"(({a()} > {b()}) * 1.0)",
            ]
        )
