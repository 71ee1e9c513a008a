"""A hash chain of signed links: what a client's ledger is made of, and why nobody can change it unseen.

    genesis = H(ledger id, owner's name)                    a random id: two ledgers never share a head
    content = H(sequence, kind, body)                       bodies stay at the client; only this digest travels
    hash    = H(previous hash, content)                     so a head stands for everything before it
    signature over (ledger id, sequence, hash)              by the owner's identity key

Whoever has seen a head can be shown, by the contents since then, that a later head only adds to it. A changed, missing
or reordered link gives other hashes; a restored copy of an old ledger lacks a head that the servers have signed; two
copies that both went on have two hashes for one sequence number. A body holds a random salt, so that a content digest
tells nothing to a reader who could guess the rest.

A link of kind ``recovered`` may continue from a head whose links are lost: its body names that head. Everything
about money is in :mod:`tallystick.roles.ledger.account`; this module only knows that nothing was altered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from tallystick.core.errors import VerificationError
from tallystick.core.identifiers import HASH_BYTES, canonical, digest, format_hash
from tallystick.core.outside_text import read_json

LEDGER_BYTES = 16
MAX_BODY = 64 << 20
"""Of one link: a recovery carries every charge that is still known."""
KINDS = ("register", "grant", "reserve", "release", "commit", "void", "changed", "recovered")
_LABEL = b"tallystick/ledger/1"
_REMEDY = "Restore the newest copy of the state directory; if there is none: tallystick ledger recover."


class Verifier(Protocol):
    """The owner's public key (``crypto.signing.VerifyKey``): returns, or raises ``VerificationError``."""

    def verify(self, message: bytes, signature: bytes) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where a ledger stands: everything up to ``sequence`` and nothing else."""

    ledger: bytes
    sequence: int
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link; ``body`` is canonical JSON."""

    sequence: int
    kind: str
    body: bytes
    previous: bytes
    hash: bytes
    signature: bytes

    def head(self, ledger: bytes) -> Head:
        """Where the ledger stands with it."""
        return Head(ledger=ledger, sequence=self.sequence, hash=self.hash)

    @property
    def content(self) -> bytes:
        """What a server is shown in place of the body."""
        return link_content(self.sequence, self.kind, self.body)


def genesis(ledger: bytes, party: str) -> bytes:
    """The hash before the first link."""
    return digest(_LABEL, b"genesis", ledger, party.encode())


def link_content(sequence: int, kind: str, body: bytes) -> bytes:
    """The digest that stands for a link's content."""
    return digest(_LABEL, b"content", sequence.to_bytes(8, "little"), kind.encode(), body)


def extend(previous: bytes, contents: Iterable[bytes]) -> list[bytes]:
    """The hashes after each of these contents: what a server computes from the last head it has seen."""
    hashes = []
    for content in contents:
        previous = digest(_LABEL, b"link", previous, content)
        hashes.append(previous)
    return hashes


def signed_bytes(head: Head) -> bytes:
    """What the owner signs for the link at this head."""
    return digest(_LABEL, b"signature", head.ledger, head.sequence.to_bytes(8, "little"), head.hash)


def make_link(previous: Head, kind: str, body: dict[str, Any]) -> Link:
    """The unsigned link after ``previous``; its signature is over ``signed_bytes`` of the new head."""
    raw = canonical(body)
    sequence = previous.sequence + 1
    (hashed,) = extend(previous.hash, [link_content(sequence, kind, raw)])
    return Link(sequence=sequence, kind=kind, body=raw, previous=previous.hash, hash=hashed, signature=b"")


def parse_body(link: Link) -> dict[str, Any]:
    """The body as a table; anything but the one spelling of a table is refused."""
    try:
        body = read_json(link.body, limit=MAX_BODY)
        if isinstance(body, dict) and canonical(body) == link.body:
            return body
    except ValueError:
        pass
    raise _broken(link.sequence, "its text is not what this program writes")


def verify_chain(links: Iterable[Link], key: Verifier, *, after: Head) -> Head:
    """Follow ``links`` on from ``after``; the new head, or an error that names the first link that is wrong."""
    head = after
    for link in links:
        if link.sequence != head.sequence + 1:
            head = _over_gap(link, head)
        if link.kind not in KINDS:
            raise _broken(link.sequence, "it is of no known kind")
        if link.previous != head.hash:
            raise _broken(link.sequence, "it does not follow the link before it")
        if extend(link.previous, [link.content]) != [link.hash]:
            raise _broken(link.sequence, "its content was changed")
        head = link.head(after.ledger)
        try:
            key.verify(signed_bytes(head), link.signature)
        except VerificationError:
            raise _broken(link.sequence, "it is not signed by this institution's identity key") from None
    return head


def _over_gap(link: Link, head: Head) -> Head:
    """The head a ``recovered`` link continues from, as its body says; servers hold what they have seen against it."""
    if link.kind == "recovered" and link.sequence > head.sequence + 1 and len(link.previous) == HASH_BYTES:
        told = parse_body(link).get("resumed")
        if told == {"sequence": link.sequence - 1, "head": format_hash(link.previous)}:
            return Head(ledger=head.ledger, sequence=link.sequence - 1, hash=link.previous)
    raise VerificationError(f"the ledger's link {head.sequence + 1} is missing", rule="ledger-chain", remedy=_REMEDY)


def _broken(sequence: int, why: str) -> VerificationError:
    return VerificationError(
        f"the ledger's link {sequence} is not as it was written: {why}", rule="ledger-chain", remedy=_REMEDY
    )
