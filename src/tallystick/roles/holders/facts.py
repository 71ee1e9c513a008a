"""What every party of a study among institutions with different columns derives from it: who multiplies what, and how
long what they say to each other may be."""

from __future__ import annotations

from typing import Any

from tallystick.algorithms.joint_moments.program import JointDesign
from tallystick.core.errors import NotApproved
from tallystick.core.identifiers import digest
from tallystick.crypto.blinded_identifiers import POINT_BYTES
from tallystick.crypto.field import ELEMENT_BYTES
from tallystick.engines.joint_map import joint_parameters
from tallystick.engines.setup import Setup
from tallystick.protocol.alignment import AlignmentParameters
from tallystick.protocol.joint_products import JointParameters, parameters
from tallystick.protocol.labels import LabelsParameters
from tallystick.protocol.members import Cast
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
    lists = max(POINT_BYTES * (held.people or 0) for held in holders.values())
    if not isinstance(setup.design, JointDesign):
        return lists
    program: Any = setup.design.program
    width: int = ELEMENT_BYTES * program.rows.width
    return max(lists, min(parameters.ROWS_BYTES + width, records * width))


def holders_limit(setup: Setup) -> int:
    """No message between institutions, or of the dealer, or of labels, is longer; 0 where none are sent."""
    if setup.study.data.holders is None:
        return 0
    other: int = setup.study.data.records or 0  # a byte for each person's label
    if isinstance(setup.design, JointDesign):
        program: Any = setup.design.program
        other = ELEMENT_BYTES * program.rows.width**2
    return _OVERHEAD + max(longest_said(setup), other, SMALL_BYTES)


def labels_of(setup: Setup, roster: Roster, cast: Cast) -> LabelsParameters:
    """Who tells whom the labels, in a study whose sums are reduced with them."""
    return LabelsParameters(
        study_hash=roster.session,
        study=roster.study_hash,
        holder=setup.public.label_holder or "",
        reducer=roster.coordinator,
        reducer_role=cast.members.role(roster.coordinator) or "",
        records=setup.study.data.records or 0,
        identities=cast.identities,
    )
