"""The scalar form as machine code. Only :meth:`_Emitter._address` makes an address, and it compares first.

One function of one argument, the memory's address; it returns 0, or 1 if the record failed. It calls nothing but the
C library's mathematics, allocates nothing and raises nothing. Floating point is strict IEEE: no contraction, no
reassociation, so a record's bits depend on the record and the state alone.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from llvmlite import binding, ir

from tallystick.algorithms.user_programs.map_compiler import code
from tallystick.algorithms.user_programs.map_compiler.code import Expr, Kind, Op, ScalarMap, Statement, names

_DOUBLE, _WORD, _BIT = ir.DoubleType(), ir.IntType(64), ir.IntType(1)
_TYPES: dict[Kind, Any] = {Kind.FLOAT: _DOUBLE, Kind.INT: _WORD, Kind.BOOL: _BIT}
_ONE_ARGUMENT = names(
    "exp expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc tgamma lgamma"
)
_TWO_ARGUMENTS = names("pow atan2 hypot fmod")
_INTRINSICS = {"sqrt": 1, "floor": 1, "ceil": 1, "trunc": 1, "rint": 1, "fabs": 1, "copysign": 2}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_PREFIX = "tallystick_map_"


@dataclass(frozen=True, kw_only=True)
class Native:
    """Machine code and what keeps it alive."""

    call: Any
    """A C function: address of the memory → 0 (done) or 1 (the record failed)."""
    engine: Any


def native(program: ScalarMap, offsets: tuple[int, ...]) -> Native:
    """Compile; ``offsets`` says at which word of the memory each region begins."""
    _prepare()
    module = ir.Module(name="map")
    module.triple = binding.get_default_triple()
    _Emitter(module, program, offsets).function()
    machine = binding.Target.from_default_triple().create_target_machine(opt=2, jit=True)
    parsed = binding.parse_assembly(str(module))
    parsed.verify()
    passes = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=2))
    passes.getModulePassManager().run(parsed, passes)
    engine = binding.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_size_t)
    return Native(call=prototype(engine.get_function_address("map")), engine=engine)


@lru_cache(maxsize=1)
def _prepare() -> None:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    for name in _ONE_ARGUMENT | _TWO_ARGUMENTS:
        # Under a name of our own: the optimiser must not take it for a function whose results it knows.
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        binding.add_symbol(_PREFIX + name, address)


class _Emitter:
    def __init__(self, module: Any, program: ScalarMap, offsets: tuple[int, ...]) -> None:
        self.module, self.program, self.offsets = module, program, offsets
        self.main = ir.Function(module, ir.FunctionType(_WORD, [_WORD]), name="map")
        self.b = ir.IRBuilder(self.main.append_basic_block("entry"))
        self.failed = self.main.append_basic_block("failed")
        self.loops: list[tuple[Any, Any]] = []
        self.slots: list[Any] = []

    def function(self) -> None:
        b = self.b
        self.floats = b.inttoptr(self.main.args[0], _DOUBLE.as_pointer())
        self.words = b.inttoptr(self.main.args[0], _WORD.as_pointer())
        for kind in self.program.slots:
            slot = b.alloca(_TYPES[kind])
            b.store(_TYPES[kind](0), slot)  # a slot that nobody wrote is zero, never what lay there
            self.slots.append(slot)
        self.block(self.program.body)
        if not b.block.is_terminated:
            b.branch(self.failed)  # the end of a map without a return
        b.position_at_end(self.failed)
        b.ret(_WORD(1))

    # -- statements ---------------------------------------------------------------------------------------------------

    def block(self, statements: tuple[Statement, ...]) -> None:
        for statement in statements:
            if self.b.block.is_terminated:
                return  # behind break, continue, return
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        b = self.b
        match statement:
            case code.Set(slot=slot, value=value):
                b.store(self.value(value), self.slots[slot.number])
            case code.Store(region=region, index=index, value=value):
                found = self.value(value)
                kind = value.kind
                place = self._address(region, index, kind)
                b.store(b.zext(found, _WORD) if kind == Kind.BOOL else found, place)
            case code.If(test=test, then=then, other=other):
                self._if(test, then, other)
            case code.Loop():
                self._loop(statement)
            case code.Jump.FAIL:
                b.branch(self.failed)
            case code.Jump.BREAK:
                b.branch(self.loops[-1][1])
            case code.Jump.CONTINUE:
                b.branch(self.loops[-1][0])
            case code.Jump.RETURN:
                b.ret(_WORD(0))

    def _if(self, test: Expr, then: tuple[Statement, ...], other: tuple[Statement, ...]) -> None:
        b = self.b
        yes, no, after = (self.main.append_basic_block() for _ in range(3))
        b.cbranch(self.value(test), yes, no)
        for start, statements in ((yes, then), (no, other)):
            b.position_at_end(start)
            self.block(statements)
            if not b.block.is_terminated:
                b.branch(after)
        b.position_at_end(after)

    def _loop(self, loop: code.Loop) -> None:
        b = self.b
        head, body, step, after = (self.main.append_basic_block() for _ in range(4))
        count = self.value(loop.count)
        self._require(b.icmp_signed("<=", count, _WORD(loop.most)))
        turn = self._at_entry(_WORD)  # nobody but this loop counts here
        b.store(_WORD(0), turn)
        b.branch(head)
        b.position_at_end(head)
        b.cbranch(b.icmp_signed("<", b.load(turn), count), body, after)
        b.position_at_end(body)
        b.store(b.load(turn), self.slots[loop.slot.number])
        self.loops.append((step, after))
        self.block(loop.body)
        self.loops.pop()
        if not b.block.is_terminated:
            b.branch(step)
        b.position_at_end(step)
        b.store(b.add(b.load(turn), _WORD(1)), turn)
        b.branch(head)
        b.position_at_end(after)

    def _at_entry(self, kind: Any) -> Any:
        with self.b.goto_entry_block():
            return self.b.alloca(kind)

    def _require(self, test: Any) -> None:
        fine = self.main.append_basic_block()
        self.b.cbranch(test, fine, self.failed)
        self.b.position_at_end(fine)

    # -- numbers ------------------------------------------------------------------------------------------------------

    def _address(self, region: int, index: Expr, kind: Kind) -> Any:
        """The only place where an address arises: within the region, or the record fails."""
        b = self.b
        place = self.value(index)
        self._require(b.icmp_unsigned("<", place, _WORD(self.program.regions[region].words)))
        memory = self.floats if kind == Kind.FLOAT else self.words
        return b.gep(memory, [b.add(place, _WORD(self.offsets[region]))])

    def value(self, expression: Expr) -> Any:
        b = self.b
        match expression:
            case code.Const(kind=kind, value=value):
                return _TYPES[kind](float(value) if kind == Kind.FLOAT else int(value))
            case code.Slot(number=number):
                return b.load(self.slots[number])
            case code.Load(kind=kind, region=region, index=index):
                word = b.load(self._address(region, index, kind))
                return b.trunc(word, _BIT) if kind == Kind.BOOL else word
            case Op():
                return self._operation(expression)

    def _operation(self, op: Op) -> Any:
        b = self.b
        args = [self.value(a) for a in op.args]
        floating = op.args[0].kind == Kind.FLOAT
        if op.name.startswith("call:"):
            return b.call(self._foreign(op.name[5:], len(args)), args)
        if op.name in _INTRINSICS:
            return b.call(self._intrinsic(op.name), args)
        if op.name in _COMPARE:
            sign = _COMPARE[op.name]
            if not floating:
                return b.icmp_signed(sign, *args) if op.args[0].kind == Kind.INT else b.icmp_unsigned(sign, *args)
            return b.fcmp_unordered(sign, *args) if op.name == "ne" else b.fcmp_ordered(sign, *args)
        if op.name in ("floordiv", "mod"):
            return (self._float_floor if floating else self._int_floor)(args[0], args[1], op.name == "mod")
        if op.kind == Kind.INT and op.name in ("add", "sub", "mul", "neg"):
            return self._exact(op.name, args)
        simple: dict[str, Callable[..., Any]] = {
            "add": b.fadd,
            "sub": b.fsub,
            "mul": b.fmul,
            "div": b.fdiv,
            "neg": b.fneg,
            "and": b.and_,
            "or": b.or_,
            "xor": b.xor,
            "not": b.not_,
            "select": b.select,
            "to_int": lambda x: b.fptosi(x, _WORD) if floating else b.zext(x, _WORD),
            "to_float": lambda x: b.sitofp(x, _DOUBLE) if op.args[0].kind == Kind.INT else b.uitofp(x, _DOUBLE),
        }
        return simple[op.name](*args)

    def _intrinsic(self, name: str) -> Any:
        shape = ir.FunctionType(_DOUBLE, [_DOUBLE] * _INTRINSICS[name])
        return self.module.declare_intrinsic(f"llvm.{name}", [_DOUBLE], shape)

    def _foreign(self, name: str, arguments: int) -> Any:
        known = _ONE_ARGUMENT if arguments == 1 else _TWO_ARGUMENTS
        if name not in known:
            raise KeyError(name)  # pragma: no cover - the table of functions has no other
        symbol = _PREFIX + name
        found = self.module.globals.get(symbol)
        return found or ir.Function(self.module, ir.FunctionType(_DOUBLE, [_DOUBLE] * arguments), name=symbol)

    def _exact(self, name: str, args: list[Any]) -> Any:
        """Whole-number arithmetic as Python's, as long as it fits 64 bits; a record for which it does not fails."""
        b = self.b
        if name == "neg":
            name, args = "sub", [_WORD(0), *args]
        work = {"add": b.sadd_with_overflow, "sub": b.ssub_with_overflow, "mul": b.smul_with_overflow}[name]
        both = work(*args)
        self._require(b.not_(b.extract_value(both, 1)))
        return b.extract_value(both, 0)

    def _int_floor(self, a: Any, c: Any, mod: bool) -> Any:
        """Python's // and %. By zero the record fails; by -1 one quotient does not fit, so that is done by hand."""
        b = self.b
        self._require(b.icmp_signed("!=", c, _WORD(0)))
        minus_one = b.icmp_signed("==", c, _WORD(-1))
        safe = b.select(minus_one, _WORD(1), c)
        quotient, rest = b.sdiv(a, safe), b.srem(a, safe)
        below = b.and_(
            b.icmp_signed("!=", rest, _WORD(0)),
            b.icmp_signed("!=", b.icmp_signed("<", rest, _WORD(0)), b.icmp_signed("<", safe, _WORD(0))),
        )
        if mod:
            return b.select(minus_one, _WORD(0), b.select(below, b.add(rest, safe), rest))
        opposite = self._exact("neg", [b.select(minus_one, a, _WORD(0))])
        return b.select(minus_one, opposite, b.select(below, b.sub(quotient, _WORD(1)), quotient))

    def _float_floor(self, a: Any, c: Any, mod: bool) -> Any:
        """Python's float // and %, as CPython's float_divmod computes them.

        fmod takes time with the difference of the exponents, some microseconds at the worst: a quotient above 2^53, of
        which no digit would mean anything, fails the record.
        """
        b = self.b
        zero = _DOUBLE(0.0)
        size = self._intrinsic("fabs")
        largest = b.fmul(b.call(size, [c]), _DOUBLE(2.0**53))
        self._require(b.fcmp_ordered("<=", b.call(size, [a]), largest))
        copysign, floor = self._intrinsic("copysign"), self._intrinsic("floor")
        rest = b.call(self._foreign("fmod", 2), [a, c])
        no_rest = b.fcmp_ordered("==", rest, zero)
        other_sign = b.xor(b.fcmp_ordered("<", rest, zero), b.fcmp_ordered("<", c, zero))
        moved = b.and_(b.not_(no_rest), other_sign)
        remainder = b.select(moved, b.fadd(rest, c), rest)
        if mod:
            return b.select(no_rest, b.call(copysign, [zero, c]), remainder)
        quotient = b.fdiv(b.fsub(a, rest), c)
        quotient = b.select(moved, b.fsub(quotient, _DOUBLE(1.0)), quotient)
        whole = b.call(floor, [quotient])
        up = b.fcmp_ordered(">", b.fsub(quotient, whole), _DOUBLE(0.5))
        rounded = b.select(up, b.fadd(whole, _DOUBLE(1.0)), whole)
        return b.select(b.fcmp_ordered("==", quotient, zero), b.call(copysign, [zero, b.fdiv(a, c)]), rounded)
