"""From masked vectors and told shares to the total: the same steps for the reducer and for a peer that checks it.

A peer believes nothing of the :class:`Evidence` it is handed. The survivor set must be one that clients sign at all,
and enough must have signed it: more than (n + c)/2, so no second set of the round can have so many (``client``). The
set names every vector, each signed by its owner together with what its seed is committed to, and of each client that
dealt and dropped out its keys, signed with its dealing. What is left to choose are the shares, which nobody signs; the
seeds and wrapping keys that they give must be the committed ones (``rebuilding``, which does without wrong shares): so
one signed set has one total, at every peer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import RemoteProtocolError, VerificationError
from tallystick.core.redaction import Secret
from tallystick.crypto.field import add_into, decode_signed, from_bytes
from tallystick.crypto.masking import RoundKey, unmask, unwrap_round_keys
from tallystick.crypto.shamir import SHARE_BYTES
from tallystick.protocol.masked_sum.codec import decode
from tallystick.protocol.masked_sum.messages import (
    Code,
    Evidence,
    Quorum,
    Revealed,
    Signed,
    Survivors,
    TiedSurvivors,
    dealers_digest,
    dealt_part,
    key_commitment,
    masked_part,
    seed_commitment,
    sum_digest,
)
from tallystick.protocol.masked_sum.parameters import MaskedSumParameters
from tallystick.protocol.masked_sum.rebuilding import Fits, Rebuilding
from tallystick.protocol.masked_sum.records import ResultRecord

OUT_OF_RANGE = "out-of-range"
_HASH, _SIGNATURE = 32, 64
Open = Callable[[MaskedSumParameters, Evidence], ResultRecord]


def quorum_problem(p: MaskedSumParameters, survivors: Survivors, message: Quorum) -> tuple[Code, str] | None:
    """Why this does not show that enough survivors have signed this very set."""
    if message.agreement != survivors.digest():
        return Code.SET_DISAGREEMENT, "others have signed another survivor set than this client"
    if not set(message.signers) <= set(survivors.clients):
        return Code.SET_DISAGREEMENT, "a client has signed that is none of the survivors"
    if len(message.signers) < p.quorum or len(message.signatures) != len(message.signers):
        cause = f"{len(message.signers)} survivors have signed, and {p.quorum} must before anything is unmasked"
        return Code.THRESHOLD, cause
    for client, signature in zip(message.signers, message.signatures):
        said = Signed(study_hash=p.study_hash, round=message.round, client=client, agreement=message.agreement)
        try:
            p.identities[p.clients[client]].verify(said.signed_part(), signature)
        except VerificationError:
            return Code.BAD_SIGNATURE, f"the signature of {p.clients[client]} does not verify"
    return None


def set_problem(p: MaskedSumParameters, message: Survivors) -> str | None:
    """Why no client signs such a set, whatever it has itself seen of the round."""
    if not set(message.clients) <= set(message.dealers) <= set(range(len(p.clients))):
        return "the survivor set is not one of those who have dealt"
    if len(message.clients) < p.least:
        return f"the survivor set has {len(message.clients)} clients, and {p.least} are needed"
    if len(message.starts) != len(message.clients):
        return "the survivor set does not say under which start each of them dealt"
    if len(message.signatures) != len(message.clients):
        return "the survivor set does not show for which dealers each of them has masked its sum"
    if isinstance(message, TiedSurvivors) != p.every_peer:
        return "the survivor set does not name the sums as this study has it"
    if isinstance(message, TiedSurvivors) and len(message.keys) != len(message.gone):
        return "the survivor set does not name the keys of those who have dropped out"
    return p.graph.refusal([p.clients[client] for client in message.clients])


def fitting(
    p: MaskedSumParameters,
    survivors: Survivors,
    *,
    commitments: Mapping[int, bytes],
    keys: Mapping[int, bytes],
    wrapped: Mapping[int, bytes],
) -> Fits:
    """Whether a secret is the one its owner has committed to: a survivor's seed, or a wrapping key with its keys."""
    alive, round = frozenset(survivors.clients), survivors.round

    def fits(dealer: int, secret: Secret) -> bool:
        if dealer in alive:
            return seed_commitment(p.study_hash, round, dealer, secret.reveal()) == commitments[dealer]
        return key_commitment(p.study_hash, round, dealer, secret.reveal(), wrapped[dealer]) == keys[dealer]

    return fits


def unmasked(
    p: MaskedSumParameters,
    survivors: Survivors,
    *,
    total: NDArray[np.uint64],
    secrets: Mapping[int, Secret],
    wrapped: Mapping[int, bytes],
) -> NDArray[np.int64]:
    """The total without its masks (``total`` is used up), or ``RemoteProtocolError`` if no honest clients have it.

    ``secrets`` are those of all dealers, each :func:`fitting`.
    """
    seeds = {p.clients[client]: secrets[client] for client in survivors.clients}
    dropped = _dropped(p, secrets, survivors, wrapped)
    unmask(total, study_hash=p.study_hash, round=survivors.round, seeds=seeds, dropped=dropped)
    values = decode_signed(total)
    if (np.abs(values) > p.result_limit).any():  # |values| <= (p-1)/2 < 2^63, abs is exact
        cause = "the total is outside what honest clients can produce; it is withheld"
        raise RemoteProtocolError(cause, rule=OUT_OF_RANGE)
    return values


def _dropped(
    p: MaskedSumParameters, secrets: Mapping[int, Secret], survivors: Survivors, wrapped: Mapping[int, bytes]
) -> dict[str, dict[str, RoundKey]]:
    found = {}
    for dealer in sorted(set(survivors.dealers) - set(survivors.clients)):
        name = p.clients[dealer]
        found[name] = unwrap_round_keys(
            wrapped[dealer],
            secrets[dealer],
            study_hash=p.study_hash,
            round=survivors.round,
            party=name,
            neighbours=p.graph.neighbours(name),
        )
    return found


def open_evidence(p: MaskedSumParameters, evidence: Evidence) -> ResultRecord:
    """The round's one total, from nothing but what its clients have signed; ``RemoteProtocolError`` if it is not."""
    survivors, quorum = decode(evidence.survivors), decode(evidence.quorum)
    if not isinstance(survivors, TiedSurvivors) or not isinstance(quorum, Quorum):
        raise RemoteProtocolError("the evidence of a round is not of a survivor set that was signed")
    rounds = {(said.study_hash, said.round) for said in (survivors, quorum)}
    if rounds != {(p.study_hash, evidence.round)}:
        raise RemoteProtocolError("the evidence of a round is about another one")
    wrong = set_problem(p, survivors)
    if wrong is not None:
        raise RemoteProtocolError(wrong)
    unsigned = quorum_problem(p, survivors, quorum)
    if unsigned is not None:
        raise RemoteProtocolError(unsigned[1])
    commitments, total = _vectors(p, survivors, evidence)
    _check_gone(p, survivors, evidence)
    wrapped = dict(zip(survivors.gone, evidence.wrapped))
    keys = dict(zip(survivors.gone, survivors.keys))
    fits = fitting(p, survivors, commitments=commitments, keys=keys, wrapped=wrapped)
    rebuilding = Rebuilding(p, survivors, fits)
    for client, said in _told(p, survivors, evidence).items():
        rebuilding.take(client, said)
    if not rebuilding.ready():
        raise RemoteProtocolError("the evidence of a round has too few shares")
    if not rebuilding.attempt():  # nobody signs shares: whoever passes them on has seen that they do
        raise RemoteProtocolError("the evidence of a round has shares that do not give the seeds and keys committed to")
    values = unmasked(p, survivors, total=total, secrets=rebuilding.secrets, wrapped=wrapped)
    return ResultRecord(round=evidence.round, agreement=survivors.digest(), clients=survivors.clients, total=values)


def _vectors(
    p: MaskedSumParameters, survivors: TiedSurvivors, evidence: Evidence
) -> tuple[dict[int, bytes], NDArray[np.uint64]]:
    """What each survivor has committed its seed to, and the sum of their vectors, each signed by its owner."""
    length, count = 8 * p.size, len(survivors.clients)
    if len(evidence.vectors) != length * count or len(evidence.commitments) != _HASH * count:
        raise RemoteProtocolError("the evidence of a round does not have every survivor's vector")
    dealers = dealers_digest(p.study_hash, survivors.round, survivors.dealers)
    total, commitments = np.zeros(p.size, dtype=np.uint64), {}
    facts = zip(survivors.clients, survivors.starts, survivors.signatures, survivors.sums)
    for at, (client, start, signature, tied) in enumerate(facts):
        name = p.clients[client]
        vector = evidence.vectors[length * at : length * (at + 1)]
        commitment = commitments[client] = evidence.commitments[_HASH * at : _HASH * (at + 1)]
        if sum_digest(commitment, vector) != tied:
            raise RemoteProtocolError("a masked vector is not the one that the survivors have signed", party=name)
        try:
            p.identities[name].verify(masked_part(dealers, client, start, tied), signature)
        except VerificationError:
            raise RemoteProtocolError("a masked vector is not signed by its owner", party=name) from None
        add_into(total, from_bytes(vector, p.size, party=name), party=name)
    return commitments, total


def _check_gone(p: MaskedSumParameters, survivors: TiedSurvivors, evidence: Evidence) -> None:
    """Whoever dealt and dropped out must have signed the keys that take the masks with it off."""
    gone = survivors.gone
    if len(evidence.wrapped) != len(gone) or len(evidence.dealt) != _SIGNATURE * len(gone):
        raise RemoteProtocolError("the evidence of a round lacks the keys of clients that dropped out")
    for at, (client, commitment) in enumerate(zip(gone, survivors.keys)):
        name, said = p.clients[client], dealt_part(p.study_hash, survivors.round, client, commitment)
        try:
            p.identities[name].verify(said, evidence.dealt[_SIGNATURE * at : _SIGNATURE * (at + 1)])
        except VerificationError:
            raise RemoteProtocolError("the keys of a client that dropped out are not its own", party=name) from None


def _told(p: MaskedSumParameters, survivors: Survivors, evidence: Evidence) -> dict[int, bytes]:
    """The shares of each survivor that told some, in the order they are in: wrong ones, if there are any, last."""
    found = dict[int, bytes]()
    for raw in evidence.reveals:
        said = decode(raw)
        if not isinstance(said, Revealed) or said.client not in survivors.clients or said.client in found:
            raise RemoteProtocolError("the evidence of a round has shares that no survivor told")
        held = p.held_by(p.clients[said.client], survivors.dealers)
        if said.agreement != survivors.digest() or len(said.shares) != SHARE_BYTES * len(held):
            raise RemoteProtocolError("the evidence of a round has shares of another set")
        found[said.client] = said.shares
    return found
