"""What every party of a study among institutions with different columns derives from it: who multiplies what, and how
long what they say to each other may be."""

from __future__ import annotations

from typing import Any

from tallystick.core.errors import NotApproved
from tallystick.core.identifiers import digest
from tallystick.crypto.blinded_identifiers import POINT_BYTES
from tallystick.crypto.field import ELEMENT_BYTES
from tallystick.engines.joint_map import joint_parameters
from tallystick.engines.setup import Setup
from tallystick.protocol.alignment import AlignmentParameters
from tallystick.protocol.joint_products import JointParameters, parameters
from tallystick.protocol.study.roster import Roster
from tallystick.transport.network.frames import SMALL_BYTES

_OVERHEAD = 4096


def products_of(setup: Setup, roster: Roster) -> JointParameters:
    """As many rows as the study states: an institution that shares fewer people than that fills them up with zeros."""
    dealer = setup.study.trust.dealer  # type: ignore[attr-defined]
    return joint_parameters(setup.design.program, roster.session, setup.study.data.records or 0, dealer=dealer)


def alignment_of(session: Any, setup: Setup, roster: Roster) -> AlignmentParameters:
    """Each list is bound to the data set that its owner's approval names, and to the length that the study states."""
    holders = setup.study.data.holders or {}
    exchange = session.process.exchange
    approvals = exchange.docket(session.study_hash).standing(exchange.wall()).approvals
    for name in holders:
        if name not in approvals:
            raise NotApproved(
                f"the approval of {name} is not known here, which says of which data set its list is",
                rule="study-open",
                remedy="Nothing was sent. Run the study again when its approvals have come.",
            )
    return AlignmentParameters(
        study_hash=roster.session,
        parties=tuple(holders),
        sizes=tuple(held.people or 0 for held in holders.values()),
        data_sets=tuple(
            digest(b"tallystick/alignment/data-set/1", approvals[name].body["dataset"].encode()) for name in holders
        ),
    )


def longest_said(setup: Setup) -> int:
    """What the longest message between institutions has, about; 0 where none are sent."""
    holders, records = setup.study.data.holders, setup.study.data.records or 0
    if holders is None:
        return 0
    width: int = ELEMENT_BYTES * setup.design.program.rows.width
    lists = max(POINT_BYTES * (held.people or 0) for held in holders.values())
    return max(lists, min(parameters.ROWS_BYTES + width, records * width))


def holders_limit(setup: Setup) -> int:
    """No message between institutions, or of the dealer, is longer; 0 where none are sent."""
    if setup.study.data.holders is None:
        return 0
    dealt: int = ELEMENT_BYTES * setup.design.program.rows.width**2
    return _OVERHEAD + max(longest_said(setup), dealt, SMALL_BYTES)
