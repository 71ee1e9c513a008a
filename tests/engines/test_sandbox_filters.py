"""The seccomp filters decided by a small interpreter of classic BPF, on both architectures; and no pickle anywhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tallystick
from tallystick.engines.sandbox import seccomp
from tallystick.engines.sandbox.confinement import INBOX, OUTBOX
from tallystick.engines.sandbox.seccomp import ARCHITECTURES, Architecture, Instruction

ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x0005000D
HEADERS = Path("/usr/include")
NAMES = {  # by hand from the kernel's tables, for what must never be let through
    "x86_64": {"socket": 41, "connect": 42, "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "kill": 62}
    | {"ptrace": 101, "prctl": 157, "dup": 32, "shmat": 30, "process_vm_readv": 310, "bpf": 321, "clone3": 435}
    | {"memfd_create": 319, "userfaultfd": 323, "io_uring_setup": 425, "pkey_mprotect": 329, "setrlimit": 160}
    | {"prlimit64": 302, "personality": 135, "sendmsg": 46, "tgkill": 234, "unshare": 272, "pidfd_getfd": 438},
    "aarch64": {"socket": 198, "connect": 203, "clone": 220, "execve": 221, "kill": 129, "ptrace": 117, "prctl": 167}
    | {"dup": 23, "shmat": 196, "process_vm_readv": 270, "bpf": 280, "clone3": 435, "memfd_create": 279}
    | {"pkey_mprotect": 288, "setrlimit": 164, "prlimit64": 261, "personality": 92, "sendmsg": 211, "tgkill": 131}
    | {"userfaultfd": 282, "io_uring_setup": 425, "unshare": 97, "pidfd_getfd": 438},
}


def decide(filters: list[Instruction], audit: int, number: int, *arguments: int) -> int:
    """What the kernel's interpreter would return."""
    words = {0: number, 4: audit} | {16 + 8 * i: a & 0xFFFFFFFF for i, a in enumerate((*arguments, *[0] * 6))}
    at = accumulator = 0
    while True:
        code, yes, no, k = filters[at]
        at += 1
        if code == 0x20:
            accumulator = words[k]
        elif code == 0x06:
            return k
        else:
            true = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}[code]
            at += yes if true else no


def both(machine: Architecture, number: int, *arguments: int) -> int:
    """The stricter of the two filters' answers."""
    first = decide(seccomp.no_windows(machine, inbox=INBOX, outbox=OUTBOX), machine.audit, number, *arguments)
    second = decide(seccomp.no_new_code(machine), machine.audit, number, *arguments)
    return KILL if KILL in (first, second) else REFUSE if REFUSE in (first, second) else ALLOW


@pytest.fixture(params=sorted(ARCHITECTURES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_must_never_be_let_through(name: str) -> None:
    for number in NAMES[name].values():
        assert both(ARCHITECTURES[name], number) == KILL


def test_nothing_is_let_through_but_the_list(name: str) -> None:
    machine = ARCHITECTURES[name]
    listed = {machine.read, machine.write, machine.mmap, machine.mprotect, *machine.allowed}
    for number in range(600):
        answer = both(machine, number, 99, 99, 3)
        if number in listed - {machine.read, machine.write}:
            assert answer == ALLOW
        elif number in machine.refused or number in listed:
            assert answer == REFUSE  # files, and descriptors other than inbox and outbox
        else:
            assert answer == KILL
    assert not listed & set(machine.refused)
    assert len(set(machine.allowed)) == len(machine.allowed)


def test_descriptors_and_executable_memory(name: str) -> None:
    machine = ARCHITECTURES[name]
    assert both(machine, machine.read, INBOX) == both(machine, machine.write, OUTBOX) == ALLOW
    assert both(machine, machine.read, OUTBOX) == both(machine, machine.write, 1) == REFUSE
    before = seccomp.no_windows(machine, inbox=INBOX, outbox=OUTBOX)
    for number in (machine.mmap, machine.mprotect):
        for protection in range(8):
            assert decide(before, machine.audit, number, 0, 0, protection) == ALLOW  # while it compiles
            assert both(machine, number, 0, 0, protection) == (KILL if protection & 4 else ALLOW)
    assert decide(before, machine.audit, machine.prctl, 22) == ALLOW  # a second filter, and nothing else of prctl
    assert decide(before, machine.audit, machine.prctl, 4) == REFUSE
    assert both(machine, machine.prctl, 22) == KILL


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(sorted(ARCHITECTURES)), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_foreign_architectures_and_numbers_are_fatal(name: str, audit: int, number: int) -> None:
    machine = ARCHITECTURES[name]
    for filters in (seccomp.no_windows(machine, inbox=INBOX, outbox=OUTBOX), seccomp.no_new_code(machine)):
        if audit != machine.audit:
            assert decide(filters, audit, number) == KILL
        assert decide(filters, machine.audit, number | 0x40000000) == KILL
        assert all(code in (0x20, 0x15, 0x35, 0x45, 0x06) for code, *_ in filters)
        assert len(filters) < 4096


def test_a_filter_that_lets_sockets_through_is_noticed() -> None:
    """The control: a planted hole is seen by the interpreter."""
    machine = ARCHITECTURES["x86_64"]
    holed = Architecture(**{**vars(machine), "allowed": (*machine.allowed, 41)})
    assert both(holed, 41) == ALLOW


@pytest.mark.skipif(not (HEADERS / "asm-generic/unistd.h").exists(), reason="no kernel headers here")
def test_the_numbers_are_the_kernels() -> None:
    """Every number in the tables against the names in the comment above them."""
    source = Path(seccomp.__file__).read_text()
    listed = re.search(r"# allowed: (.*?)# refused: (.*?)ARCHITECTURES", source, re.S)
    assert listed is not None
    words = [re.sub(r"[#,]|\(.*?\)| and ", " ", part, flags=re.S).split() for part in listed.groups()]
    for name, header, optional in (
        ("x86_64", "x86_64-linux-gnu/asm/unistd_64.h", set()),
        ("aarch64", "asm-generic/unistd.h", {"time", "open", "stat", "lstat", "access", "readlink"}),
    ):
        if not (HEADERS / header).exists():
            continue
        text = (HEADERS / header).read_text()
        numbers = {n: int(k) for n, k in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
        numbers["newfstatat"] = numbers.get("newfstatat", numbers.get("fstatat", -1))
        machine = ARCHITECTURES[name]
        for names, table in zip(words, (machine.allowed, machine.refused), strict=True):
            assert {numbers[n] for n in names if n not in optional} == set(table)
        for single in ("read", "write", "mmap", "mprotect", "prctl"):
            assert numbers[single] == getattr(machine, single)


def test_no_pickle_anywhere() -> None:
    """Nothing in the product imports a module that can run code out of data, or asks NumPy to."""
    banned = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "jsonpickle"}
    for file in sorted(Path(tallystick.__file__).parent.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                found = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found = {(node.module or "").split(".")[0]}
            elif isinstance(node, ast.keyword):
                found = {"pickle"} if node.arg == "allow_pickle" else set()
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("__import__", "import_module"):
                found = {a.value for a in node.args if isinstance(a, ast.Constant)}
            else:
                continue
            assert not found & banned, f"{file}:{getattr(node, 'lineno', '?')}"
