"""A second decoder of the wire format, written from its description with ``struct`` alone.

It shares no code with ``codec``: it reads a message into a plain dict of the golden vectors' fields, or raises
ValueError. The two must agree on every vector and on every mutation the fuzzer finds.
"""

from __future__ import annotations

import struct
from itertools import pairwise

from plain_readable import readable

P = 2**64 - 2**32 + 1
CODES = range(1, 23)


def need(fine: bool) -> None:
    if not fine:
        raise ValueError("not a message")


class Reader:
    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def take(self, count: int) -> bytes:
        need(count <= len(self.raw) - self.at)
        self.at += count
        return self.raw[self.at - count : self.at]

    def number(self, form: str) -> int:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def hex(self, count: int) -> str:
        return self.take(count).hex()

    def indices(self, count: int) -> list[int]:
        need(4 * count <= len(self.raw) - self.at)
        values = [self.number("I") for _ in range(count)]
        need(all(a < b for a, b in pairwise(values)))
        return values

    def elements(self, count: int) -> list[int]:
        need(count >= 1)
        need(8 * count <= len(self.raw) - self.at)
        values = [self.number("Q") for _ in range(count)]
        need(all(value < P for value in values))
        return values

    def start(self) -> dict:
        return {"boot": self.number("I"), "value": self.hex(16), "noise": self.hex(32)}

    def text(self) -> str:
        size = self.number("H")
        need(size <= 500)
        text = self.take(size).decode("utf-8")
        need(readable(text))
        return text


def shortest(model: bytes) -> int:
    """The type a model travels under: 11 (entries that are not eight zero bytes) where shorter, else 1 (all of it)."""
    if len(model) % 8:
        return 1
    entries = sum(any(model[i : i + 8]) for i in range(0, len(model), 8))
    return 11 if 4 + 12 * entries < len(model) else 1


def plain_decode(raw: bytes, limit: int = 1 << 20) -> dict:
    r = Reader(raw)
    need(r.take(4) == b"TSUM")
    need(r.number("H") == 1)
    kind = r.number("B")
    need(r.number("B") == 0)
    m: dict = {"type": kind, "study_hash": r.hex(32), "round": r.number("I")}
    if kind == 1:
        m["deadline_ms"] = r.number("I")
        m["model_hash"] = r.hex(32)
        m["model"] = r.hex(r.number("Q"))
        need(shortest(bytes.fromhex(m["model"])) == 1)
    elif kind == 2:
        m["client"], m["server"] = r.number("I"), r.number("H")
        servers = r.number("H")
        m["size"], m["kind"] = r.number("I"), r.number("B")
        m["model_hash"], m["blind"] = r.hex(32), r.hex(32)
        length = r.number("Q")
        m["commitments"] = [r.hex(32) for _ in range(servers)]
        need(m["kind"] in (1, 2))
        if m["kind"] == 1:
            need(length == 32)
            m["seed"] = r.hex(32)
        else:
            need(length == 8 * m["size"])
            m["vector"] = r.elements(m["size"])
        m["proof"] = r.hex(r.number("I"))
    elif kind == 3:
        m["digest"] = r.hex(32)
    elif kind == 4:
        m["code"] = r.number("B")
        need(m["code"] in CODES)
        m["cause"] = r.text()
    elif kind == 5:
        m["server"], m["start"], m["model_hash"] = r.number("H"), r.start(), r.hex(32)
        n, e = r.number("I"), r.number("I")
        m["clients"] = r.indices(n)
        m["digests"] = [r.hex(32) for _ in range(n)]
        m["equivocators"] = r.indices(e)
        m["signature"] = r.hex(64)
    elif kind == 6:
        m["server"], m["honest"], m["model_hash"] = r.number("H"), r.number("H"), r.hex(32)
        servers, n = r.number("H"), r.number("I")
        m["starts"] = [r.start() for _ in range(servers)]
        m["clients"] = r.indices(n)
        m["signature"] = r.hex(64)
    elif kind == 7:
        m["server"], m["start"], m["agreement"] = r.number("H"), r.start(), r.hex(32)
        m["vector"] = r.elements(r.number("I"))
        m["signature"] = r.hex(64)
    elif kind == 8:
        m["code"] = r.number("B")
        need(m["code"] in CODES)
        m["party"], m["cause"], m["remedy"] = r.text(), r.text(), r.text()
    elif kind == 9:
        m["agreement"] = r.hex(32)
    elif kind == 12:
        m["digest"], m["complete"] = r.hex(32), r.number("B")
        need(m["complete"] in (0, 1))
        m["mark"] = r.hex(16)
    elif kind == 13:
        m["mark"] = r.hex(16)
    elif kind == 14:
        m["deadline_ms"], m["model_hash"] = r.number("I"), r.hex(32)
    elif kind == 15:
        m["deadline_ms"], m["model_hash"] = r.number("I"), r.hex(32)
        m["model"] = r.hex(r.number("Q"))
        m["blind"] = r.hex(32)
    elif kind == 11:
        m["deadline_ms"] = r.number("I")
        m["model_hash"] = r.hex(32)
        size = r.number("Q")
        need(size <= limit and size % 8 == 0)
        indices = r.indices(r.number("I"))
        need(all(i < size // 8 for i in indices))
        entries = [r.take(8) for _ in indices]
        need(all(any(entry) for entry in entries))
        held = dict(zip(indices, entries))
        model = b"".join(held.get(i, bytes(8)) for i in range(size // 8))
        need(shortest(model) == 11)
        m["model"] = model.hex()
    else:
        need(kind == 10)
    need(r.at == len(raw))
    return m
