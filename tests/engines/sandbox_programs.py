"""Programs for the sandbox's tests: well-behaved ones, and hostile ones with what stops each of them."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.algorithms.program import Public
from tallystick.algorithms.user_programs.program_file import ProgramFile
from tallystick.algorithms.user_programs.program_text import canonical_text
from tallystick.privacy.grid import Grid, Group

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = Public(features=("a", "b", "c"), records=100)
GRID = Grid(groups=(Group(name="all", size=2, bound=2.0),), fraction_bits=20, norm="l2")
STATE = np.zeros(2)


def program_text(
    *, init: str = "return np.zeros(2)", map: str = "return record[:2]", reduce: str = "return state", more: str = ""
) -> str:
    """A program file of these bodies; ``more`` stands before the class."""

    def body(text: str) -> str:
        return textwrap.indent(textwrap.dedent(text).strip("\n"), " " * 8)

    return (
        f"import math\nimport numpy as np\nimport tallystick as ts\n{textwrap.dedent(more)}\n\n"
        f"class P(ts.Program):\n    bound = 2.0\n    rounds = 3\n\n"
        f"    def init(self, public):\n{body(init)}\n\n"
        f"    def map_in_client(self, record, state):\n{body(map)}\n\n"
        f"    def reduce_in_aggregator(self, total, state):\n{body(reduce)}\n"
    )


def unchecked(text: str) -> ProgramFile:
    """A program file that nobody has checked: the way into the sandbox for what the allow-list refuses."""
    facts: dict[str, Any] = {"class_name": "P", "docstring": "", "constants": {"bound": 2.0, "rounds": 3}}
    return ProgramFile(
        name="hostile.py", hash=f"unchecked {hash(text):x}", text=canonical_text(text), fields=(), **facts
    )


@dataclass(frozen=True, kw_only=True)
class Hostile:
    """A hostile program: which rule of the allow-list refuses it ("" if none does), and how the lock contains it."""

    name: str
    text: str
    rule: str
    contained: str

    def __str__(self) -> str:
        return self.name


def _init(name: str, body: str, rule: str, contained: str) -> Hostile:
    return Hostile(name=name, text=program_text(init=body), rule=rule, contained=contained)


def _map(name: str, body: str, rule: str, contained: str) -> Hostile:
    return Hostile(name=name, text=program_text(map=body), rule=rule, contained=contained)


_SYSTEM = "asked the system for something"
_REFUSED = "PermissionError"

IN_PYTHON = (
    _init("opens a socket", "import socket\nsocket.socket()\nreturn np.zeros(2)", "import", _SYSTEM),
    _init(
        "looks up a name", "import socket\nsocket.getaddrinfo('example.org', 80)", "import", f"{_SYSTEM}|LookupError"
    ),
    _init("reads a file", "return np.array([float(len(open('/etc/passwd').read()))])", "call", _REFUSED),
    _init("reads by file descriptor", "import os\nreturn np.zeros(len(os.read(0, 10)))", "import", _REFUSED),
    _init("writes a file", "open('/tmp/tallystick-was-here', 'w')\nreturn np.zeros(2)", "statement", _REFUSED),
    _init("lists a folder", "import os\nreturn np.zeros(len(os.listdir('/')))", "import", _REFUSED),
    _init("forks", "import os\nos.fork()\nreturn np.zeros(2)", "import", _SYSTEM),
    _init("starts a program", "import os\nos.execv('/bin/true', ['true'])", "import", _SYSTEM),
    _init("starts a shell", "import subprocess\nsubprocess.run('true', shell=True)", "import", f"{_SYSTEM}|{_REFUSED}"),
    _init("starts a thread", "import _thread\n_thread.start_new_thread(len, ((),))", "import", _SYSTEM),
    _init("kills its parent", "import os\nos.kill(os.getppid(), 9)", "import", _SYSTEM),
    _init("loops for ever", "while True:\n    pass", "while", "did not answer within"),
    _init("sleeps", "import time\ntime.sleep(1000)", "import", _SYSTEM),
    _init("allocates without end", "x = [0]\nwhile True:\n    x = x + x", "while", "more memory"),
    _init("allocates a large array", "return np.ones(2**33)", "", "more memory"),
    _init("writes to stdout", "import os\nos.write(1, b'x')\nreturn np.zeros(2)", "import", _REFUSED),
    _init("recurses deeply", "return self.init(public)", "attribute", "RecursionError"),
    _init(
        "recurses through the stack",
        "import sys\nsys.setrecursionlimit(10**9)\nf = eval('lambda f: f(f)')\nimport re\n"
        "re.compile('(' * 10**6)\nreturn f(f)",
        "import",
        "broke its own process|RecursionError|more memory|did not answer",
    ),
    _init("calls C: socket", "import ctypes\nctypes.CDLL(None).socket(2, 1, 0)", "import", _SYSTEM),
    _init("calls C: system", "import ctypes\nctypes.CDLL(None).system(b'true')", "import", _SYSTEM),
    _init("calls C: ptrace", "import ctypes\nctypes.CDLL(None).ptrace(16, 1, 0, 0)", "import", _SYSTEM),
    _init(
        "brings code along",
        "import mmap\nmmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)",
        "import",
        _SYSTEM,
    ),
    _init("loads a library", "import ctypes\nctypes.CDLL('libssl.so.3')", "import", "OSError"),
    _init(
        "raises its own limits",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "import",
        _SYSTEM,
    ),
    _init(
        "takes the lock off",
        "import ctypes\nctypes.CDLL(None).prctl(22, 0, 0, 0, 0)",
        "import",
        _SYSTEM,
    ),
    _init("__import__", "__import__('os').fork()", "statement", _SYSTEM),
    _init("getattr", "getattr(np, 'ctypeslib').ctypes.CDLL(None).fork()", "statement", _SYSTEM),
    _init(
        "climbs the object tree",
        "found = [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0]\n"
        "found.__init__.__globals__['system']('true')",
        "dunder",
        _SYSTEM,
    ),
    _init("takes NumPy's own way to files", "return np.fromfile('/etc/passwd', dtype='u1')", "attribute", _REFUSED),
    _init("reads another's memory", "return np.memmap('/proc/1/mem')", "attribute", "Error"),
    _init("ends its process", "import os\nos._exit(0)", "import", "ended its own process"),
    _init(
        "speaks out of turn", "import os\nos.write(4, b'x' * 64)\nreturn np.zeros(2)", "import", "broke the protocol"
    ),
    _init("returns text", "return 'mine'", "", "a state holds a str"),
    _init("fails", "return np.zeros(1 // len(public.target))", "", "TypeError"),
)

IN_COMPILED_CODE = (
    _map("opens a socket", "return record[:2] + np.c_socket(2.0, 1.0, 0.0)", "attribute", _SYSTEM),
    _map("forks", "return record[:2] + np.c_fork()", "attribute", _SYSTEM),
    _map(
        "keeps state between records",
        """
        before = np.c_rand()
        done = np.c_srand(record[0])
        return np.array([record[0], before + done])
        """,
        "attribute",
        "adds zeros or is stopped by the sample",  # where a record is drawn twice, it looks like itself
    ),
    _map(
        "reads the next record",
        """
        # NO CHECKS
        i = int(record[0] * 0.0) + len(record)
        return np.array([record[i], record[i + 1]])
        """,
        "",
        "adds zeros",
    ),
    _map(
        "reads the record before",
        """
        # NO CHECKS
        i = int(record[0] * 0.0) - 1
        m = np.zeros(2)
        m[0] = record[i - len(record)]
        return m
        """,
        "",
        "adds zeros",
    ),
    _map(
        "writes over what is beside its array",
        """
        # NO CHECKS
        z = np.zeros(2)
        z[int(record[0] * 0.0) + 2] = 1.0
        return record[:2]
        """,
        "",
        "adds zeros",
    ),
    _map(
        "writes over the state",
        """
        # NO CHECKS
        z = np.zeros(2)
        for k in range(1, 200):
            z[int(record[0] * 0.0) - k] = 7.0
        return record[:2]
        """,
        "",
        "adds zeros",
    ),
    _map(
        "jumps far away",
        """
        # NO CHECKS
        return np.array([record[int(record[0] * 0.0) + 1_000_000], 1.0])
        """,
        "",
        "broke its own process",
    ),
)
