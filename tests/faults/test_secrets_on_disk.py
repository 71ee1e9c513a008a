"""After a study has ended, however it ended, no file of any role holds its noise, shares, seeds, keys or exact sums.

Real processes; every secret is noted as it is made (``secret_notes``), outside the roles' folders, and every file of
every role is then searched for pieces of it in the forms that could be used. The same search finds them in mid-round,
and after studies whose roles forget badly on purpose: so it can fail.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import pytest
from consortium_fixture import Parties, bits, wait_for
from crash_point_list import CrashPoint

from tallystick.core.errors import RoundAborted
from tallystick.crypto.field import encode_signed
from tallystick.study import Study

SERVERS, CLIENTS = ("server-1", "server-2"), ("client-1", "client-2", "client-3")
PIECE = 16  # bytes: two elements of a vector, half a key
Found = Counter[tuple[str, str, str, int]]  # who holds it, what, whose, of which round


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    made = Parties(tmp_path_factory.mktemp("disks"))
    try:
        made.start(secrets=True)
        yield made
    finally:
        made.close()


def forms(kind: str, raw: bytes) -> Iterator[bytes]:
    """A secret as it could lie in a file; a vector's elements may be signed or taken into the field."""
    yield raw
    yield raw.hex().encode()
    yield base64.b64encode(raw).rstrip(b"=")
    if kind == "noise":
        yield encode_signed(np.frombuffer(raw, dtype="<i8")).astype("<u8").tobytes()
    if kind in ("noise", "sum"):
        yield np.frombuffer(raw, dtype="<i8").astype(">i8").tobytes()
        yield ", ".join(map(str, np.frombuffer(raw, dtype="<i8").tolist())).encode()


def pieces(kind: str, raw: bytes) -> Iterator[bytes]:
    """Every part of it that is long enough not to be there by chance."""
    for form in forms(kind, raw):
        for at in range(0, len(form) - PIECE + 1, 8):
            piece = form[at : at + PIECE]
            if len(set(piece)) > 4:  # not padding
                yield piece


def held(content: bytes, wanted: Collection[bytes]) -> Iterator[bytes]:
    """Which pieces are in there, at any place: a hash of each window of 16 bytes is looked up, then compared."""

    def hashes(raw: bytes, shift: int = 0) -> np.ndarray:
        words = np.frombuffer(raw, dtype="<u8", offset=shift, count=(len(raw) - shift) // 8)
        return words[:-1] * np.uint64(0x9E3779B97F4A7C15) + words[1:]

    known = np.sort(np.concatenate([hashes(piece) for piece in wanted]))
    for shift in range(8):
        if len(content) >= shift + PIECE:
            found = hashes(content, shift)
            nearest = known[np.minimum(np.searchsorted(known, found), len(known) - 1)]
            for at in np.flatnonzero(nearest == found):
                piece = content[shift + 8 * at : shift + 8 * at + PIECE]
                if piece in wanted:
                    yield piece


def search(parties: Parties) -> Found:
    """All files of all roles."""
    wanted = {
        piece: (kind, owner, int(round))
        for owner in parties.configs
        for kind, round, raw in map(str.split, parties.noted("secrets", owner))
        for piece in pieces(kind, bytes.fromhex(raw))
    }
    assert {kind for kind, _, _ in wanted.values()} == {"key", "noise", "share", "blind", "seed", "sum"}
    found: Found = Counter()
    for name in parties.configs:
        for file in sorted(parties.state(name).rglob("*")):
            try:
                content = file.read_bytes() if file.is_file() else b""
            except FileNotFoundError:  # erased between the look and the reading
                continue
            found.update((name, *wanted[piece]) for piece in held(content, wanted))
    return found


def wait_until_over(parties: Parties, study: Study) -> None:
    """Every role has carried out the end: the last thing a server or client does is to take the folder away."""
    wait_for(lambda: not [name for name in parties.configs if (parties.state(name) / study.hash.hex()).exists()])


def test_mid_round_they_are_there_and_after_the_round_and_the_study_they_are_not(consortium: Parties) -> None:
    study = consortium.study()
    consortium.hold_at("client-2", CrashPoint.CLIENT_CONTRIBUTION_KEPT.value)
    consortium.hold_at("server-1", CrashPoint.SERVER_AGREEMENT_KEPT.value)
    running = consortium.fit_in_background(study)
    consortium.wait_held("client-2")
    there = search(consortium)
    assert there["client-2", "seed", "client-2", 1]
    assert all(there[name, "key", name, 0] for name in (*SERVERS, *CLIENTS))
    assert all(there[name, "noise", name, 1] for name in SERVERS)
    consortium.let_go("client-2")

    consortium.wait_held("server-1")  # all shares of round 1 are in, and the set is agreed
    there = search(consortium)
    assert all(there["server-1", "share", name, 1] for name in CLIENTS)
    assert not [what for what in there if what[1] == "seed"]  # every server has said that it has its share

    consortium.hold_at("server-1", CrashPoint.SERVER_PARTIAL_SENT.value)  # it goes on to there
    consortium.wait_held("server-1")
    wait_for(lambda: not [what for what in search(consortium) if what[0] == "server-1" and what[1] != "key"])
    assert search(consortium)["server-1", "key", "server-1", 0]  # the study goes on
    consortium.let_go("server-1")

    assert bits(running.result()) == bits(consortium.simulated(study))
    wait_until_over(consortium, study)
    assert not search(consortium)


def test_after_kill_and_restart(consortium: Parties) -> None:
    """Killed with a share half sent, and with a round's files set aside but perhaps not overwritten yet."""
    study = consortium.study()
    consortium.die_at("client-1", CrashPoint.CLIENT_SHARE_SENT.value)
    consortium.die_at("server-1", CrashPoint.SERVER_SHARES_DROPPED.value, 2)  # the first is of the opening
    consortium.die_at("server-2", CrashPoint.SERVER_NOISE_ERASED.value)
    running = consortium.fit_in_background(study)
    for name in ("client-1", "server-1", "server-2"):
        assert consortium.wait_dead(name) == -9, consortium.logs()
        consortium.start(name, secrets=True)
    assert bits(running.result()) == bits(consortium.simulated(study))
    wait_until_over(consortium, study)
    assert not search(consortium)


def test_after_a_study_that_fails_in_mid_round_while_a_server_is_down(consortium: Parties) -> None:
    """Server 1 dies with round 2 open; the study fails meanwhile; back again it only has to erase."""
    consortium.kill("client-3")
    consortium.start("client-3", secrets=True, hostile="object_in_round_two")
    study = consortium.study()
    consortium.die_at("server-1", CrashPoint.SERVER_NOISE_KEPT.value, 2)
    error = consortium.fit_in_background(study).error()
    assert isinstance(error, RoundAborted)
    assert error.round == 2
    assert consortium.wait_dead("server-1") == -9
    assert search(consortium)["server-1", "noise", "server-1", 2]
    consortium.start("server-1", secrets=True)
    wait_until_over(consortium, study)
    assert not search(consortium)


@pytest.mark.parametrize("planted", ["secrets_in_the_database", "secrets_kept", "files_moved_away"])
def test_a_role_that_forgets_badly_is_caught(tmp_path: Path, planted: str) -> None:
    parties = Parties(tmp_path)
    try:
        parties.start("server-1", "client-1", secrets=True, planted=planted)
        parties.start("server-2", "aggregator", "client-2", "client-3", secrets=True)
        parties.fit(parties.study())
        wait_for(lambda: parties.noted("reached", "client-1")[-1] == CrashPoint.CLIENT_LEDGER_COMMIT_ANCHORED.value)
        wait_for(lambda: CrashPoint.SERVER_KEYS_ERASED.value in parties.noted("reached", "server-1"))
        for name in list(parties.pids):
            parties.kill(name)
        found = {(what[0], what[1]) for what in search(parties)}
    finally:
        parties.close()
    expected = {
        "secrets_in_the_database": {("server-1", "noise"), ("client-1", "seed")},
        "secrets_kept": {("server-1", "key"), ("client-1", "key")},
        "files_moved_away": {("server-1", "noise"), ("server-1", "share"), ("client-1", "seed")},
    }[planted]
    assert found >= expected
    assert {name for name, _ in found} == {"server-1", "client-1"}
