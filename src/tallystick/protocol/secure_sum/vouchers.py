"""What servers have signed of a round, kept for a receipt that must do without one of them.

A server vouches for a study at its end (its attestation). One that is lost before cannot. But it has signed, in every
round that was released, whom it sums, on which model, and under which starts and commitments to noise of all servers
(``Agreement``); what it signed is bound to the study and its roster by the session's name. With those signatures
anyone can check, offline, that a lost server took part in each round over the very participants that a receipt lists.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from tallystick.protocol.secure_sum.messages import Agreement, Start


def pack_vouchers(agreement: Agreement, signatures: Mapping[str, bytes]) -> bytes:
    """The agreement of a round without its participants, and each server's signature under it."""
    starts = [[start.boot, start.value.hex(), start.noise.hex()] for start in agreement.starts]
    signed = {server: signature.hex() for server, signature in signatures.items()}
    return json.dumps({"model": agreement.model_hash.hex(), "starts": starts, "signatures": signed}).encode()


def voucher_of(voucher: Any, *, session: bytes, round: int, honest: int, clients: tuple[int, ...]) -> Agreement:
    """What was signed: the agreement over these clients, by their places in the roster; or ``ValueError``."""
    try:
        starts = [Start(boot=b, value=bytes.fromhex(v), noise=bytes.fromhex(n)) for b, v, n in voucher["starts"]]
        made = Agreement(
            study_hash=session,
            round=round,
            server=0,
            honest=honest,
            model_hash=bytes.fromhex(voucher["model"]),
            starts=tuple(starts),
            clients=clients,
        )
        made.digest()
        return made
    except (LookupError, TypeError, AttributeError, struct.error) as error:
        raise ValueError(str(error)) from None
