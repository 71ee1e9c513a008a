"""Whether a party takes part in a study that it has not started itself: by its own view, whatever a ``start`` says.

A ``start`` is the aggregator's word, with the aggregator's date on it. It may name approvals that were taken back, and
date itself before a proposal expired. So it is a record of who ran a study when, for those who started it; it is no
reason to start. Until a party has itself started:

* the proposal must be alive by this party's own clock: neither expired, nor withdrawn, nor replaced;
* the decisions in force, each client's newest one, must be a quorum of approvals of that very proposal;
* a client's own newest decision must be one of them.

What the aggregator has said can only make it less: a study that is over is not begun, nor one that was started without
this client. A party that was not told of somebody else's change of mind cannot count it; its own it always knows.
"""

from __future__ import annotations

from tallystick.core.errors import NotApproved
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.standing import Standing

_SHOWN = 300  # characters of a reason that somebody gave


def check_approved(docket: Docket, now: float) -> Standing:
    """How the study stands if nobody had started it, if that is "approved" and it is not over; or ``NotApproved``."""
    standing, told = docket.unstarted(now), docket.standing(now)
    if told.state in ("finished", "failed"):
        raise _not_in_state(told)
    if standing.state != "approved":
        raise _not_in_state(standing, started=told)
    return standing


def check_taking_part(docket: Docket, client: str, now: float) -> Standing:
    """The same for a client: it has approved the study itself, and that approval is in force."""
    told = docket.standing(now)
    own = docket.decisions(client)
    if own and own[-1].body["decision"] != "approve":
        body = own[-1].body
        what = {"reject": "rejected the study", "counter": "made a counter-proposal"}[body["decision"]]
        why = f": {body['reason'][:_SHOWN]}" if body["reason"] else ""
        raise _not_in_force(f"this client has {what}, by {body['by'] or 'its steward'}{why}", client, told)
    standing = check_approved(docket, now)
    if client not in standing.approvals:
        if client in standing.rejections:
            cause = "this client has signed two different decisions at once, which counts as no"
        elif own:
            cause = "this client has approved another proposal of the study, or approved this one too late"
        else:
            cause = "this client's data steward has not approved the study"
        raise _not_in_force(cause, client, told)
    if told.start is not None and client not in told.approvals:
        raise _not_in_force("the study was started without this client", client, told)
    return standing


def _not_in_state(standing: Standing, *, started: Standing | None = None) -> NotApproved:
    return NotApproved(
        f"the study is {standing.state}: {standing.words}".rstrip(".") + (_whatever(started) if started else ""),
        rule=f"study-{standing.state}",
        remedy="Only an approved study is run: tallystick study show tells what is missing.",
    )


def _not_in_force(cause: str, client: str, told: Standing) -> NotApproved:
    return NotApproved(
        cause.rstrip(".") + _whatever(told),
        party=client,
        rule="own-approval",
        remedy="Its steward may approve it: tallystick study approve.",
    )


def _whatever(told: Standing) -> str:
    """If the aggregator says it runs: that this changes nothing."""
    if told.start is None:
        return ""
    return f". That {told.start.signer} has signed a start changes nothing: this party has not started the study"
