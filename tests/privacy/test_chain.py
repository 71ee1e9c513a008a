"""The chain of a ledger: any change of any link is seen and named, and a server follows it without the bodies."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import VerificationError
from tallystick.core.identifiers import canonical, format_hash
from tallystick.crypto.signing import SigningKey
from tallystick.privacy.chain import (
    KINDS,
    Head,
    Link,
    extend,
    genesis,
    link_content,
    make_link,
    parse_body,
    signed_bytes,
    verify_chain,
)

KEY, OTHER = SigningKey(b"k" * 32), SigningKey(b"o" * 32)
LEDGER = b"L" * 16
START = Head(ledger=LEDGER, sequence=0, hash=genesis(LEDGER, "client"))


def after(link: Link) -> Head:
    return Head(ledger=LEDGER, sequence=link.sequence, hash=link.hash)


def signed(link: Link, key: SigningKey = KEY) -> Link:
    return replace(link, signature=key.sign(signed_bytes(after(link))))


def chain(*entries: tuple[str, dict[str, object]], start: Head = START) -> list[Link]:
    links, head = [], start
    for kind, body in entries:
        links.append(signed(make_link(head, kind, body)))
        head = after(links[-1])
    return links


SMALL = chain(("register", {"name": "a"}), ("grant", {"epsilon": "1.0"}), ("reserve", {"n": 1}), ("release", {"n": 2}))


def test_a_chain_is_followed_to_its_head() -> None:
    assert verify_chain(SMALL, KEY.public, after=START) == after(SMALL[-1])
    assert verify_chain([], KEY.public, after=START) == START
    assert verify_chain(SMALL[2:], KEY.public, after=after(SMALL[1])) == after(SMALL[-1])
    assert verify_chain(iter(SMALL), KEY.public, after=START).sequence == 4


def test_known_answers() -> None:
    """Written down once: another release must compute the same heads."""
    assert START.hash.hex() == "f0b21c37aa5ca890afa202b92a37c302e9ae3c3f6ec71ae7907fcfaf5c2ddc01"
    assert SMALL[0].body == b'{"name":"a"}'
    assert SMALL[0].hash.hex() == "cf5c63c1e541870a1d2a784951b0c11275fd6659cd428d3c36af717dceefb6da"


def test_the_hashes_by_hand() -> None:
    """An independent reading of the module's head: SHA-256 over length-prefixed parts."""

    def h(*parts: bytes) -> bytes:
        return hashlib.sha256(b"".join(len(p).to_bytes(8, "little") + p for p in parts)).digest()

    label, head = b"tallystick/ledger/1", None
    for link in SMALL:
        before = h(label, b"genesis", LEDGER, b"client") if head is None else head
        content = h(label, b"content", link.sequence.to_bytes(8, "little"), link.kind.encode(), link.body)
        head = h(label, b"link", before, content)
        assert (link.previous, link.hash) == (before, head)
        KEY.public.verify(h(label, b"signature", LEDGER, link.sequence.to_bytes(8, "little"), head), link.signature)


def test_a_server_follows_without_the_bodies() -> None:
    contents = [link.content for link in SMALL]
    assert extend(START.hash, contents) == [link.hash for link in SMALL]
    assert extend(SMALL[1].hash, contents[2:])[-1] == SMALL[-1].hash
    assert extend(START.hash, [contents[1], contents[0]])[-1] != SMALL[1].hash


def test_every_byte_of_every_link_is_covered() -> None:
    """One bit changed anywhere is found, and the right link is named."""
    for place, link in enumerate(SMALL):
        for name in ("body", "previous", "hash", "signature", "kind"):
            value = getattr(link, name)
            raw = value.encode() if isinstance(value, str) else value
            for i in range(len(raw)):
                for bit in (1, 0x20, 0x80):
                    bad = raw[:i] + bytes([raw[i] ^ bit]) + raw[i + 1 :]
                    changed = bad.decode("latin-1") if isinstance(value, str) else bad
                    links = [*SMALL[:place], replace(link, **{name: changed}), *SMALL[place + 1 :]]
                    with pytest.raises(VerificationError, match=rf"link {link.sequence} is not as it was") as caught:
                        verify_chain(links, KEY.public, after=START)
                    assert caught.value.exit_code == 6
                    assert "ledger recover" in caught.value.remedy


def test_missing_swapped_and_doubled_links_are_found() -> None:
    a, b, c, d = SMALL
    for links, missing in (([b, c, d], 1), ([a, c, d], 2), ([a, b, d], 3), ([a, c, b, d], 2), ([a, a, b], 2)):
        with pytest.raises(VerificationError, match=f"link {missing} is missing"):
            verify_chain(links, KEY.public, after=START)
    renumbered = replace(c, sequence=2)
    with pytest.raises(VerificationError, match="link 2 is not as it was written: it does not follow"):
        verify_chain([a, renumbered, d], KEY.public, after=START)


def test_another_owner_another_key_another_ledger() -> None:
    with pytest.raises(VerificationError, match="identity key"):
        verify_chain(SMALL, OTHER.public, after=START)
    for start in (genesis(LEDGER, "another client"), genesis(b"M" * 16, "client")):
        assert start != START.hash
        with pytest.raises(VerificationError, match="link 1"):
            verify_chain(SMALL, KEY.public, after=replace(START, hash=start))
    with pytest.raises(VerificationError):  # the signature names the ledger, too
        verify_chain(SMALL, KEY.public, after=replace(START, ledger=b"M" * 16))


def test_a_forger_without_the_key_cannot_rewrite_the_end() -> None:
    """Consistent hashes are easy to make; the signature is not."""
    forged = signed(make_link(after(SMALL[1]), "reserve", {"n": 0}), OTHER)
    with pytest.raises(VerificationError, match="link 3 is not as it was written: it is not signed"):
        verify_chain([*SMALL[:2], forged], KEY.public, after=START)


def test_kinds_and_sequence_are_in_the_content() -> None:
    contents = {link_content(s, kind, b"{}") for s in (1, 2) for kind in KINDS}
    assert len(contents) == 2 * len(KINDS)
    stranger = signed(make_link(START, "gift", {}))
    with pytest.raises(VerificationError, match="no known kind"):
        verify_chain([stranger], KEY.public, after=START)


def test_only_a_recovered_link_goes_on_over_a_gap() -> None:
    lost = after(SMALL[3])
    facts = {"sequence": 4, "head": format_hash(lost.hash)}
    recovered = signed(make_link(lost, "recovered", {"resumed": facts}))
    assert verify_chain([*SMALL[:2], recovered], KEY.public, after=START).sequence == 5
    for bad in (
        signed(make_link(lost, "recovered", {"resumed": {**facts, "sequence": 3}})),
        signed(make_link(lost, "recovered", {"resumed": None})),
        signed(make_link(lost, "grant", {"resumed": facts})),
    ):
        with pytest.raises(VerificationError, match="link 3 is missing"):
            verify_chain([*SMALL[:2], bad], KEY.public, after=START)
    with pytest.raises(VerificationError, match="identity key"):
        verify_chain([*SMALL[:2], signed(recovered, OTHER)], KEY.public, after=START)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b'{"a": 1}', b'{"b":1,"a":2}', b'{"a":1,"a":1}', b'{"a":NaN}', b'{"a":"\xc3\xa4"}', b"\xff"],
)
def test_a_body_has_one_spelling(text: bytes) -> None:
    with pytest.raises(VerificationError, match="not what this program writes"):
        parse_body(replace(SMALL[0], body=text))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text(max_size=6), json_values, max_size=4), st.integers(0, 10**9))
def test_bodies_come_back(body: dict[str, object], sequence: int) -> None:
    link = make_link(replace(START, sequence=sequence), "grant", body)
    assert parse_body(link) == body
    assert canonical(parse_body(link)) == link.body
    assert link.sequence == sequence + 1
