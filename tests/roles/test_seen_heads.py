"""What a server has seen of a client's ledger: it signs what adds to that, and says what it has seen otherwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.privacy.chain import Head, extend, genesis
from tallystick.roles.governance.store import GovernanceStore
from tallystick.roles.ledger.seen_heads import SeenHeads, judge

CLIENT, LEDGER = "client-1", b"L" * 16
CONTENTS = [bytes([n]) * 32 for n in range(1, 13)]
HASHES = [genesis(LEDGER, CLIENT), *extend(genesis(LEDGER, CLIENT), CONTENTS)]


def head(sequence: int, hashes: list[bytes] = HASHES, ledger: bytes = LEDGER) -> Head:
    return Head(ledger=ledger, sequence=sequence, hash=hashes[sequence])


def shown(since: int, until: int) -> tuple[Head, list[bytes]]:
    return head(until), CONTENTS[since:until]


@pytest.fixture
def seen(tmp_path: Path):
    with SeenHeads(tmp_path / "state" / "governance.sqlite", party="server-1") as made:
        yield made


def test_a_ledger_is_followed(seen: SeenHeads) -> None:
    assert seen.last(CLIENT) is None
    assert seen.accept(CLIENT, *shown(0, 3)).accepted
    assert seen.accept(CLIENT, *shown(3, 4)).accepted
    assert seen.accept(CLIENT, *shown(2, 7)).accepted  # overlapping is fine
    assert seen.last(CLIENT) == head(7)
    verdict = seen.accept(CLIENT, *shown(7, 7))
    assert (verdict.accepted, verdict.why) == (True, "it was seen")
    assert seen.last("client-2") is None


def test_heads_of_concurrent_studies_come_in_any_order(seen: SeenHeads) -> None:
    """Study A reserved at 5, study B at 6; B's charge arrives first."""
    assert seen.accept(CLIENT, *shown(0, 6)).accepted
    assert seen.accept(CLIENT, *shown(0, 5)).accepted
    assert seen.accept(CLIENT, *shown(5, 5)).accepted
    assert seen.last(CLIENT) == head(6)


def test_it_survives_a_restart(seen: SeenHeads, tmp_path: Path) -> None:
    seen.accept(CLIENT, *shown(0, 3))
    seen.close()
    with SeenHeads(tmp_path / "state" / "governance.sqlite", party="server-1") as again:
        assert again.last(CLIENT) == head(3)
        assert again.accept(CLIENT, *shown(3, 5)).accepted


def test_a_fork_is_refused(seen: SeenHeads) -> None:
    seen.accept(CLIENT, *shown(0, 4))
    other = extend(HASHES[3], [b"x" * 32, b"y" * 32])
    for sequence, hashed, contents in (
        (4, other[0], [b"x" * 32]),
        (5, other[1], [b"x" * 32, b"y" * 32]),
        (5, extend(HASHES[0], [*CONTENTS[:3], b"x" * 32, b"y" * 32])[-1], [*CONTENTS[:3], b"x" * 32, b"y" * 32]),
    ):
        verdict = seen.accept(CLIENT, Head(ledger=LEDGER, sequence=sequence, hash=hashed), contents)
        assert (verdict.accepted, verdict.last, verdict.new) == (False, head(4), ())
        assert verdict.why == "another link was seen in its place"
    assert seen.last(CLIENT) == head(4), "nothing of a refused head is kept"


def test_a_head_its_links_do_not_lead_to_is_refused(seen: SeenHeads) -> None:
    seen.accept(CLIENT, *shown(0, 4))
    for contents in ([], CONTENTS[4:5], CONTENTS[5:7], [CONTENTS[5], CONTENTS[4]]):
        assert not seen.accept(CLIENT, head(6), contents).accepted
    assert seen.accept(CLIENT, *shown(4, 6)).accepted


def test_a_jump_over_links_never_shown_is_refused(seen: SeenHeads) -> None:
    seen.accept(CLIENT, *shown(0, 4))
    verdict = seen.accept(CLIENT, *shown(6, 8))
    assert (verdict.accepted, verdict.why) == (False, "it continues from a link that was never shown")
    assert verdict.last == head(4)


def test_a_first_head_is_taken_as_it_is(seen: SeenHeads) -> None:
    """A server that joins later: from here on it holds the client to it."""
    assert seen.accept(CLIENT, *shown(5, 8)).accepted
    assert seen.last(CLIENT) == head(8)
    assert seen.accept(CLIENT, *shown(8, 9)).accepted
    verdict = seen.accept(CLIENT, *shown(0, 9))
    assert not verdict.accepted  # what lies before cannot be filled in afterwards
    assert seen.last(CLIENT) == head(9)


def test_another_ledger_of_the_same_client_is_refused(seen: SeenHeads) -> None:
    seen.accept(CLIENT, *shown(0, 2))
    fresh = [genesis(b"M" * 16, CLIENT), *extend(genesis(b"M" * 16, CLIENT), CONTENTS)]
    verdict = seen.accept(CLIENT, head(5, fresh, b"M" * 16), CONTENTS[:5])
    assert (verdict.accepted, verdict.why, verdict.last) == (False, "another ledger of this client is known", head(2))


def test_a_ledger_belongs_to_its_client(seen: SeenHeads) -> None:
    """The client's name is in the first hash: another one's ledger does not follow from it."""
    assert not seen.accept("client-2", *shown(0, 3)).accepted


@pytest.mark.parametrize(
    ("found", "contents"),
    [
        (Head(ledger=LEDGER, sequence=0, hash=HASHES[0]), []),
        (Head(ledger=LEDGER, sequence=-1, hash=HASHES[0]), []),
        (Head(ledger=LEDGER, sequence=1 << 60, hash=HASHES[0]), []),
        (Head(ledger=b"short", sequence=1, hash=HASHES[1]), CONTENTS[:1]),
        (Head(ledger=LEDGER, sequence=1, hash=b"short"), CONTENTS[:1]),
        (Head(ledger=LEDGER, sequence=1, hash=HASHES[1]), [b"short"]),
        (Head(ledger=LEDGER, sequence=1, hash=HASHES[1]), CONTENTS[:2]),
    ],
)
def test_malformed_heads(seen: SeenHeads, found: Head, contents: list[bytes]) -> None:
    assert not seen.accept(CLIENT, found, contents).accepted
    assert seen.last(CLIENT) is None


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12), st.booleans()), max_size=12))
def test_honest_messages_in_any_order_never_stop_an_honest_client(steps: list[tuple[int, int, bool]]) -> None:
    """Whatever prefix was shown how often: the true chain from its beginning is always accepted, a fork never after."""
    known: dict[int, bytes] = {}
    last: Head | None = None
    for since, until, forked in steps:
        if since > until or (since and since not in known and last is None):
            continue
        contents = CONTENTS[since:until]
        hashes = extend(HASHES[since], contents)
        if forked and contents:
            contents = [*contents[:-1], b"f" * 32]
            hashes = extend(HASHES[since], contents)
            if until not in known:
                continue  # nobody can tell a fork from the truth before the truth was shown
        found = Head(ledger=LEDGER, sequence=until, hash=hashes[-1] if hashes else HASHES[until])
        verdict = judge(CLIENT, found, contents, known, last)
        if forked and contents:
            assert not verdict.accepted
        elif since == 0 or since in known:
            assert verdict.accepted, verdict.why
            known |= dict(verdict.new)
            last = max([found, *([last] if last else [])], key=lambda h: h.sequence)
    assert judge(CLIENT, head(12), CONTENTS, known, last).accepted


def test_another_process_that_looks_into_the_file_takes_nothing_away(tmp_path: Path) -> None:
    """Two connections of one process share its locks: making the second must not give up those of the first.

    They were given up: whoever looked from outside left as the last one, and deleted the log that was written to.
    """
    path = tmp_path / "state" / "governance.sqlite"
    look = f"import sqlite3; db = sqlite3.connect({str(path)!r}); print(*db.execute('SELECT * FROM seen_heads')); "
    look += "db.close()"
    with GovernanceStore(path, party="server-1", identities={}), SeenHeads(path, party="server-1") as seen:
        seen.accept(CLIENT, *shown(0, 3))
        subprocess.run([sys.executable, "-c", look], check=True)
        seen.accept(CLIENT, *shown(3, 4))
        said = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True).stdout
        assert f", 4, {head(4).hash!r}" in said
