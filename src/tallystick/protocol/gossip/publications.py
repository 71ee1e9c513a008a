"""The perturbed records that one member holds: one publication of each peer, or the proof that it has made two.

A publication counts by its signature and its form, never by who brought it. The second, different one of a peer is an
equivocation: both go, the two signatures are kept as the proof, and whoever is shown the proof drops that peer, too. So
a peer that tells different records to different neighbours is left out everywhere, instead of making models differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tallystick.core.errors import TallystickError, VerificationError
from tallystick.crypto.signing import VerifyKey
from tallystick.protocol.gossip.messages import SHORT_BYTES, Code, Proof, Publication, publication_digest, root_of

Validator = Callable[[str, bytes], None]
"""Raises unless a body is what this peer could have published in this study; it is handed nothing else."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A publication or proof that is not taken, and why."""

    code: Code
    cause: str


class Publications:
    """``study`` is the study's hash, not the session's: an attempt with another roster publishes nothing new."""

    def __init__(
        self, study: bytes, names: Sequence[str], identities: Mapping[str, VerifyKey], validate: Validator
    ) -> None:
        self.study, self.names = study, tuple(names)
        self._identities, self._validate = identities, validate
        self._held: dict[int, Publication] = {}
        self._digests: dict[int, bytes] = {}
        self._proofs: dict[int, Proof] = {}
        self._root: bytes | None = None

    @property
    def held(self) -> frozenset[int]:
        """Peers whose publication is here."""
        return frozenset(self._held)

    @property
    def convicted(self) -> frozenset[int]:
        """Peers that have published two."""
        return frozenset(self._proofs)

    @property
    def root(self) -> bytes:
        """Names everything that is held."""
        if self._root is None:
            self._root = root_of(list(self._digests.items()))
        return self._root

    def get(self, peer: int) -> Publication | None:
        """A peer's publication."""
        return self._held.get(peer)

    def proof(self, peer: int) -> Proof:
        """Why a peer is left out."""
        return self._proofs[peer]

    def short(self, peer: int) -> bytes:
        """The digest of a held publication, as it stands in lists."""
        return self._digests[peer][:SHORT_BYTES]

    def offer(self, publication: Publication) -> Publication | Proof | Refusal | None:
        """Take a publication: itself if it is new, a proof if it is the second one, None if it is known."""
        peer = publication.peer
        if not 0 <= peer < len(self.names):
            return Refusal(Code.WRONG_PARTY, "a record of nobody in the study")
        known = self._held.get(peer)
        if known is not None and known.body == publication.body:
            return None
        if peer in self._proofs:
            return None  # neither of its records counts, nor would a third
        refusal = self._check(peer, publication.body, publication.signature)
        if refusal is not None:
            return refusal
        if known is None:
            self._held[peer] = publication
            self._digests[peer] = publication_digest(self.study, self.names[peer], publication.body)
            self._root = None
            return publication
        first, second = sorted(((known.body, known.signature), (publication.body, publication.signature)))
        proof = Proof(
            peer=peer, first=first[0], first_signature=first[1], second=second[0], second_signature=second[1]
        )
        self._convict(proof)
        return proof

    def take_proof(self, proof: Proof) -> Proof | Refusal | None:
        """Take somebody's proof: itself if it is new and convinces, None if the peer is known for it."""
        if not 0 <= proof.peer < len(self.names):
            return Refusal(Code.WRONG_PARTY, "a proof against nobody in the study")
        if proof.peer in self._proofs:
            return None
        if proof.first == proof.second:
            return Refusal(Code.BAD_SIGNATURE, "a proof of two records shows one")
        for body, signature in ((proof.first, proof.first_signature), (proof.second, proof.second_signature)):
            refusal = self._check(proof.peer, body, signature)
            if refusal is not None:
                return refusal
        self._convict(proof)
        return proof

    def restore(self, publications: Sequence[Publication], proofs: Sequence[Proof]) -> None:
        """What this member has kept itself, checked again: a file may have been damaged."""
        for proof in proofs:
            if isinstance(self.take_proof(proof), Refusal):
                raise _damaged()
        for publication in publications:
            if isinstance(self.offer(publication), (Refusal, Proof)):
                raise _damaged()

    def _convict(self, proof: Proof) -> None:
        self._proofs[proof.peer] = proof
        self._held.pop(proof.peer, None)
        self._digests.pop(proof.peer, None)
        self._root = None

    def _check(self, peer: int, body: bytes, signature: bytes) -> Refusal | None:
        name = self.names[peer]
        try:
            self._identities[name].verify(publication_digest(self.study, name, body), signature)
        except TallystickError:
            return Refusal(Code.BAD_SIGNATURE, f"a record that {name} has not signed for this study")
        try:
            self._validate(name, body)
        except TallystickError as error:
            return Refusal(Code.BAD_RECORD, f"a record that {name} cannot have drawn: {error.cause}")
        return None


def _damaged() -> VerificationError:
    return VerificationError(
        "a stored record is damaged",
        remedy="Restore this party's state from its last good copy; until then it takes part in no round.",
    )
