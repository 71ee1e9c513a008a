"""Who gets a result, and how: sealed to the identities the study names, opened nowhere else.

Whoever asks sends a fresh key signed by its identity; the aggregator answers with the result sealed to that key, under
a fresh key of its own. So the bytes are worth nothing to whoever carries them, and nothing to the asker's own key once
it is dropped. Everybody else gets the privacy receipt, which needs no result.
"""

from __future__ import annotations

from tallystick.core.errors import NotApproved, RemoteProtocolError, VerificationError
from tallystick.core.identifiers import format_hash
from tallystick.core.outside_text import NotReadable, read_json
from tallystick.core.randomness import WordSource
from tallystick.crypto.key_agreement import PUBLIC_BYTES, AgreementKey, StudyKey, derive_channel
from tallystick.crypto.sealing import Opener, Sealer
from tallystick.crypto.signing import SIGNATURE_BYTES, SigningKey, VerifyKey
from tallystick.protocol.study.messages import result_digest
from tallystick.study import Study

PROPOSER = "analyst"
MAX_BYTES = 1 << 30
"""Of a packed result: all states a study has released."""
_ASK = "result"  # the role the keys of this exchange are signed for; no study key has it
_KEY_BYTES = PUBLIC_BYTES + SIGNATURE_BYTES


def may_see(study: Study, party: str, *, proposer: str) -> bool:
    """Whether the study shows its result to this party. ``analyst`` is the one who proposed, if nobody has that name;
    a study that names nobody shows it to whoever proposed it."""
    named = set(study.results.visible_to or (PROPOSER,))
    return party in named or (party == proposer and PROPOSER in named)


def is_interim(packed: bytes) -> bool:
    """Whether this is what a stream has released so far, not its end."""
    try:
        return bool(read_json(packed, limit=MAX_BYTES).get("interim") is True)
    except (NotReadable, AttributeError):
        return False


def ended_early(packed: bytes) -> tuple[int, int] | None:
    """Rounds done and rounds planned, if this was released because a study could not go on; None of a whole result."""
    try:
        told = read_json(packed, limit=MAX_BYTES)
        planned = told.get("ended_early")
        return (len(told["history"]), planned) if type(planned) is int else None
    except (NotReadable, LookupError, TypeError, AttributeError):
        return None


def _study_key(study_hash: bytes, party: str, raw: bytes, identity: VerifyKey) -> StudyKey:
    key = StudyKey(
        study_hash=study_hash, party=party, role=_ASK, public=raw[:PUBLIC_BYTES], signature=raw[PUBLIC_BYTES:]
    )
    key.verify(identity)
    return key


class ResultRequest:
    """The asker's side: ``body`` goes to the aggregator, ``open`` takes what comes back."""

    def __init__(self, study_hash: bytes, party: str, signing: SigningKey, source: WordSource) -> None:
        self._study, self._key = study_hash, AgreementKey.generate(source)
        self._signed = self._key.sign(signing, study_hash=study_hash, party=party, role=_ASK)

    @property
    def body(self) -> bytes:
        """The fresh key and its signature."""
        return self._signed.public + self._signed.signature

    def open(self, answer: bytes, *, aggregator: str, identity: VerifyKey, expected: str) -> bytes:
        """The result, which has the digest the study's outcome was signed with."""
        packed = self.unseal(answer, aggregator=aggregator, identity=identity)
        self.check(packed, aggregator=aggregator, expected=expected)
        return packed

    def unseal(self, answer: bytes, *, aggregator: str, identity: VerifyKey) -> bytes:
        """What the aggregator sent, compared with nothing yet: of a running stream there is its word alone."""
        if len(answer) <= _KEY_BYTES:
            raise RemoteProtocolError("a result is cut short", rule="malformed", party=aggregator)
        theirs = _study_key(self._study, aggregator, answer[:_KEY_BYTES], identity)
        channel = derive_channel(self._key, sender=theirs, receiver=self._signed)
        packed = Opener(channel).open(answer[_KEY_BYTES:])
        self._key.erase()
        return packed

    def check(self, packed: bytes, *, aggregator: str, expected: str) -> None:
        """Raise unless this is the result that the signed outcome names."""
        found = format_hash(result_digest(self._study, packed))
        if found != expected:
            raise VerificationError(
                "the result is not the one the study ended with",
                party=aggregator,
                rule="result-digest",
                remedy=f"The outcome says {expected}, this is {found}. Do not use it; ask the aggregator's operator.",
            )


def seal_result(
    study_hash: bytes,
    packed: bytes,
    *,
    asked: bytes,
    party: str,
    identity: VerifyKey,
    own: str,
    signing: SigningKey,
    source: WordSource,
) -> bytes:
    """The aggregator's answer to a request of ``party``."""
    if len(asked) != _KEY_BYTES:
        raise RemoteProtocolError("a request for a result is not one", rule="malformed", party=party)
    try:
        theirs = _study_key(study_hash, party, asked, identity)
    except VerificationError:
        raise NotApproved("the key the result was to be sealed to is not signed by its owner", party=party) from None
    key = AgreementKey.generate(source)
    mine = key.sign(signing, study_hash=study_hash, party=own, role=_ASK)
    channel = derive_channel(key, sender=mine, receiver=theirs)
    sealed = Sealer(channel, source).seal(packed)
    key.erase()
    return mine.public + mine.signature + sealed
