"""A pseudo-random function whose key can forget: the value at a name stays the same for ever, until it is given up.

The tree of [GGM86]: a node of 32 bytes has two children, HMAC-SHA256 of it under two labels, and the value at a name is
the leaf that 128 bits of the name's digest lead to. A key is a set of nodes; at first it is the root. To give up a
name, the node above its leaf is replaced by the siblings along the way down: whoever has what is left computes every
other value, and nothing about that one (the values of a pseudo-random function at other places do not tell it; a
puncturable function in the sense of [BW13]). An older copy of the key still has the value, and it is the same one.

Two names that led to one leaf would be given up together; to find such a pair takes 2^64 digests.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from tallystick.core.errors import VerificationError
from tallystick.core.identifiers import digest
from tallystick.core.randomness import WordSource
from tallystick.core.redaction import Secret
from tallystick.crypto.prg import SEED_BYTES, derive

DEPTH = 128
_IDENT_BYTES = 16
_LEAF = b"tallystick/puncturable/leaf/1"
_FORMAT = b"tallystick/puncturable/1"
_CHILD = (b"tallystick/puncturable/left/1", b"tallystick/puncturable/right/1")
_NODE = Struct(f"<B{DEPTH // 8}s{SEED_BYTES}s")

Node = tuple[int, int]
"""How deep it lies, and the way to it: so many bits."""


class PuncturableKey:
    """The key; ``ident`` names it, and tells nothing of it. Its ``repr`` shows no node."""

    __slots__ = ("_nodes", "ident")

    def __init__(self, ident: bytes, nodes: Mapping[Node, bytes]) -> None:
        self.ident, self._nodes = ident, dict(nodes)

    @classmethod
    def generate(cls, source: WordSource) -> PuncturableKey:
        """A new one, that has given up nothing."""
        return cls(source.bytes(_IDENT_BYTES), {(0, 0): source.bytes(SEED_BYTES)})

    def __repr__(self) -> str:
        return f"PuncturableKey({self.ident.hex()})"

    def value(self, name: bytes) -> Secret | None:
        """32 bytes for this name, always the same; None once it was given up."""
        leaf = _leaf(name)
        start = self._above(leaf)
        if start is None:
            return None
        seed = self._nodes[start]
        for depth in range(start[0], DEPTH):
            seed = _child(seed, _bit(leaf, depth))
        return Secret(seed)

    def without(self, name: bytes) -> PuncturableKey:
        """This key when it has given up a name."""
        leaf = _leaf(name)
        start = self._above(leaf)
        if start is None:
            return self
        nodes = dict(self._nodes)
        seed = nodes.pop(start)
        for depth in range(start[0], DEPTH):
            bit = _bit(leaf, depth)
            nodes[depth + 1, (_way(leaf, depth) << 1) | (1 - bit)] = _child(seed, 1 - bit)
            seed = _child(seed, bit)
        return PuncturableKey(self.ident, nodes)

    def _above(self, leaf: int) -> Node | None:
        return next((n for n in ((d, _way(leaf, d)) for d in range(DEPTH + 1)) if n in self._nodes), None)

    # -- bytes -------------------------------------------------------------------------------------------------------

    def to_secret(self) -> Secret:
        """All of it, for a file."""
        nodes = sorted(self._nodes.items())
        body = self.ident + b"".join(_NODE.pack(d, way.to_bytes(DEPTH // 8, "big"), s) for (d, way), s in nodes)
        return Secret(digest(_FORMAT, body) + body)

    @classmethod
    def from_secret(cls, raw: Secret) -> PuncturableKey:
        """Inverse of :meth:`to_secret`."""
        told, body = raw.reveal()[:SEED_BYTES], raw.reveal()[SEED_BYTES:]
        ident, nodes = body[:_IDENT_BYTES], body[_IDENT_BYTES:]
        if told != digest(_FORMAT, body) or len(ident) < _IDENT_BYTES or len(nodes) % _NODE.size:
            raise VerificationError(
                "a key of draws is not as it was written",
                rule="storage-corrupt",
                remedy="Restore this party's state from its last good copy; until then it takes part in no study.",
            )
        found = (_NODE.unpack_from(nodes, at) for at in range(0, len(nodes), _NODE.size))
        return cls(ident, {(depth, int.from_bytes(way, "big")): seed for depth, way, seed in found})


def _leaf(name: bytes) -> int:
    return int.from_bytes(digest(_LEAF, name)[: DEPTH // 8], "big")


def _way(leaf: int, depth: int) -> int:
    return leaf >> (DEPTH - depth)


def _bit(leaf: int, depth: int) -> int:
    return (leaf >> (DEPTH - depth - 1)) & 1


def _child(seed: bytes, bit: int) -> bytes:
    return derive(seed, _CHILD[bit])
