"""The study codec written a second time, plainly and by hand, from the description in the README and codec's head."""

from __future__ import annotations

import re
import struct

from plain_readable import readable

CODES = range(1, 19)


class Reader:
    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def take(self, n: int) -> bytes:
        if n > len(self.raw) - self.at:
            raise ValueError("short")
        self.at += n
        return self.raw[self.at - n : self.at]

    def u(self, n: int) -> int:
        return int.from_bytes(self.take(n), "little")

    def code(self) -> int:
        code = self.u(1)
        if code not in CODES:
            raise ValueError("code")
        return code

    def text(self) -> str:
        n = self.u(2)
        if n > 500:
            raise ValueError("long")
        text = self.take(n).decode("utf-8")
        if not readable(text):
            raise ValueError("control")
        return text

    def name(self) -> str:
        name = self.take(self.u(1)).decode("utf-8")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}", name):
            raise ValueError("name")
        return name

    def hex(self, n: int) -> str:
        return self.take(n).hex()


def plain_decode(raw: bytes) -> dict:
    r = Reader(raw)
    magic, version, kind, zero = struct.unpack("<4sHBB", r.take(8))
    if (magic, version, zero) != (b"TSTU", 1, 0):
        raise ValueError("header")
    out: dict = {"type": kind, "study_hash": r.hex(32)}
    if kind == 1:
        out |= {"request": r.hex(16), "consortium_hash": r.hex(32), "study": r.hex(r.u(8))}
        out["program"] = r.take(r.u(8)).decode("utf-8")
    elif kind == 2:
        out |= {"attempt": r.u(4), "ready_ms": r.u(4), "min_clients": r.u(4), "consortium_hash": r.hex(32)}
        out |= {"study": r.hex(r.u(8)), "program": r.take(r.u(8)).decode("utf-8")}
    elif kind == 3:
        out |= {"attempt": r.u(4), "min_clients": r.u(4), "party": r.name()}
        out |= {"public": r.hex(32), "signature": r.hex(64)}
    elif kind == 4:
        out |= {"attempt": r.u(4), "party": r.name(), "code": r.code(), "cause": r.text()}
    elif kind == 5:
        out |= {"attempt": r.u(4), "min_clients": r.u(4)}
        count = r.u(4)
        if count > len(raw):
            raise ValueError("count")
        out["tickets"] = [[r.name(), r.hex(32), r.hex(64)] for _ in range(count)]
    elif kind == 6:
        out |= {"attempt": r.u(4), "code": r.code(), "result": r.hex(32)}
    elif kind == 7:
        out |= {"round": r.u(4), "rounds": r.u(4)}
    elif kind == 8:
        out |= {"attempt": r.u(4), "packed": r.hex(r.u(8))}
    elif kind == 9:
        out |= {"attempt": r.u(4), "request": r.hex(16), "final": r.u(1)}
        if out["final"] > 1:
            raise ValueError("flag")
        out |= {"code": r.code(), "round": r.u(4), "exit_code": r.u(1)}
        out |= {name: r.text() for name in ("rule", "party", "cause", "remedy")}
    elif kind == 10:
        out["request"] = r.hex(16)
    elif kind == 11:
        out |= {"code": r.code(), "cause": r.text()}
    elif kind in (12, 13, 14):
        out |= {"attempt": r.u(4), "pause": r.u(4)}
    elif kind == 15:
        out |= {"request": r.hex(16), "close": r.u(1)}
        if out["close"] > 1:
            raise ValueError("flag")
    else:
        raise ValueError("type")
    if r.at != len(raw):
        raise ValueError("trailing")
    return out
