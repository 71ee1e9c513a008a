"""Whether every server has signed the rounds of a study that ended early: checked offline, for its receipt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tallystick.core.errors import TallystickError
from tallystick.protocol.members import Cast
from tallystick.protocol.secure_sum.vouchers import voucher_of
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
        roster, honest = make_roster(cast, start), int(facts["honest"])
    except (TallystickError, LookupError, TypeError, ValueError):
        yield cast.coordinator, "it does not show with whom the study was started."
        return
    if len(vouchers) != len(participants):
        yield cast.coordinator, f"it is about {len(vouchers)} rounds, and {len(participants)} were done."
        return
    for number, (names, voucher) in enumerate(zip(participants, vouchers), start=1):
        for index, server in enumerate(cast.makers if names else ()):
            try:
                clients = tuple(sorted(roster.clients.index(name) for name in names))
                agreement = voucher_of(voucher, session=roster.session, round=number, honest=honest, clients=clients)
                signature = bytes.fromhex(voucher["signatures"][server])
                cast.identities[server].verify(replace(agreement, server=index).signed_part(), signature)
            except (TallystickError, LookupError, TypeError, ValueError):
                yield server, f"{server} has not signed for round {number} with these participants."
