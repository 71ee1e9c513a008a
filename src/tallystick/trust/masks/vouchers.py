"""Whether enough survivors have signed the rounds of a study that ended early: checked offline, for its receipt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tallystick.core.errors import TallystickError
from tallystick.protocol.masked_sum.messages import signed_part
from tallystick.protocol.masked_sum.vouchers import voucher_of
from tallystick.protocol.members import Cast
from tallystick.protocol.study.codec import decode
from tallystick.protocol.study.messages import StudyStart
from tallystick.protocol.study.roster import make_roster


def unsigned(
    early: Mapping[str, Any], cast: Cast, study: bytes, participants: Sequence[Sequence[str]], facts: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """(whose signature is missing, in words what for); ``early`` is a receipt's section and may hold anything."""
    try:
        start, vouchers = decode(bytes.fromhex(early["start"])), list(early["vouchers"])
        if not isinstance(start, StudyStart) or start.study_hash != study:
            raise ValueError("another study")
        roster = make_roster(cast, start)
        coalition = int(facts["colluding"]) + (facts["reducer"] != cast.model.coordinator)
    except (TallystickError, LookupError, TypeError, ValueError):
        yield cast.coordinator, "it does not show with whom the study was started."
        return
    if len(vouchers) != len(participants):
        yield cast.coordinator, f"it is about {len(vouchers)} rounds, and {len(participants)} were done."
        return
    needed = (len(roster.clients) + coalition) // 2 + 1
    for number, (names, voucher) in enumerate(zip(participants, vouchers), start=1):
        if not names:
            continue
        signers = [name for name in names if _has_signed(name, names, voucher, number, cast, roster)]
        if len(signers) < needed:
            who = next((name for name in names if name not in signers), cast.coordinator)
            yield who, f"{len(signers)} clients have signed for round {number} with these participants, not {needed}."


def _has_signed(name: str, names: Sequence[str], voucher: Any, round: int, cast: Cast, roster: Any) -> bool:
    try:
        clients = tuple(sorted(roster.clients.index(one) for one in names))
        survivors = voucher_of(voucher, session=roster.session, round=round, clients=clients)
        signature = bytes.fromhex(voucher["signatures"][name])
        cast.identities[name].verify(signed_part(survivors.digest(), roster.clients.index(name)), signature)
    except (TallystickError, LookupError, TypeError, ValueError):
        return False
    return True
