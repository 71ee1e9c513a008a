"""What the survivors of a round have signed, kept for a receipt that must do without some of them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from tallystick.protocol.boots import Start
from tallystick.protocol.masked_sum.messages import Survivors, TiedSurvivors

_TIED = ("sums", "keys")


def pack_vouchers(survivors: Survivors, signatures: Mapping[str, bytes]) -> bytes:
    """The agreement of a round without its participants, and the signatures under it."""
    facts = {
        "model": survivors.model_hash.hex(),
        "dealers": list(survivors.dealers),
        "starts": [[s.boot, s.value.hex(), s.noise.hex()] for s in survivors.starts],
        **{
            key: [one.hex() for one in getattr(survivors, key)] for key in _TIED if isinstance(survivors, TiedSurvivors)
        },
        "signatures": {name: signature.hex() for name, signature in signatures.items()},
    }
    return json.dumps(facts).encode()


def voucher_of(voucher: Any, *, session: bytes, round: int, clients: tuple[int, ...]) -> Survivors:
    """What was signed: the survivor set of these clients, by their places in the roster."""
    try:
        starts = tuple(Start(boot=b, value=bytes.fromhex(v), noise=bytes.fromhex(n)) for b, v, n in voucher["starts"])
        facts: dict[str, Any] = {
            "study_hash": session,
            "round": round,
            "model_hash": bytes.fromhex(voucher["model"]),
            "dealers": tuple(voucher["dealers"]),
            "clients": clients,
            "starts": starts,
        }
        tied: dict[str, Any] = {
            key: tuple(bytes.fromhex(one) for one in voucher[key]) for key in _TIED if _TIED[0] in voucher
        }
        survivors = TiedSurvivors(**facts, **tied) if tied else Survivors(**facts)
        survivors.digest()
        return survivors
    except (LookupError, TypeError, AttributeError, struct.error) as error:
        raise ValueError(str(error)) from None
