"""What proxy and data user have signed of a round, kept for a receipt that must do without one of them."""

from __future__ import annotations

import json
import struct
from typing import Any

from tallystick.protocol.boots import Start
from tallystick.protocol.encrypted_sum.messages import Countersigned, Participants


def pack_vouchers(mine: Participants, agreed: Countersigned, *, proxy: str, data_user: str) -> bytes:
    """The agreement of a round without its participants, and both signatures under it."""
    starts = [[s.boot, s.value.hex(), s.noise.hex()] for s in (mine.start, agreed.start)]
    signed = {proxy: mine.signature.hex(), data_user: agreed.signature.hex()}
    facts = {"model": mine.model_hash.hex(), "key": mine.key_hash.hex(), "starts": starts, "signatures": signed}
    return json.dumps(facts).encode()


def voucher_of(
    voucher: Any, *, session: bytes, round: int, clients: tuple[int, ...]
) -> tuple[Participants, Countersigned]:
    """What was signed: the set of these clients, by their places in the roster, and its countersignature."""
    try:
        proxy, user = [Start(boot=b, value=bytes.fromhex(v), noise=bytes.fromhex(n)) for b, v, n in voucher["starts"]]
        mine = Participants(
            study_hash=session,
            round=round,
            model_hash=bytes.fromhex(voucher["model"]),
            key_hash=bytes.fromhex(voucher["key"]),
            start=proxy,
            clients=clients,
        )
        agreed = Countersigned(study_hash=session, round=round, participants=mine.signed_part(), start=user)
        agreed.digest()
        return mine, agreed
    except (LookupError, TypeError, AttributeError, struct.error) as error:
        raise ValueError(str(error)) from None
