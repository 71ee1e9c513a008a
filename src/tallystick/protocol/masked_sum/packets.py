"""What one client seals for another, relayed by the reducer: shares of both its secrets of a round.

    plaintext = round (4) ‖ dealer (4) ‖ model hash (32) ‖ start (52) ‖ share of wrapping key (40) ‖ of self seed (40)

A packet is sealed under the pair's secret for its round and direction (:meth:`PairSecret.seal`), with a fresh nonce: a
client that was set back and seals again uses none twice. Round, dealer and model are compared by whoever opens it; a
packet of another round, dealer, receiver or roster does not open. Keys of packets and keys of masks are different
outputs of HKDF-Expand: a round key that is revealed opens no packet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from tallystick.core.errors import RemoteProtocolError
from tallystick.core.randomness import WordSource
from tallystick.crypto.mask_keys import PairSecret
from tallystick.crypto.shamir import SHARE_BYTES
from tallystick.protocol.boots import Start

_PACKET = Struct(f"<II32sI16s32s{SHARE_BYTES}s{SHARE_BYTES}s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """One dealer's shares for one neighbour, and under which start and at which model it dealt."""

    round: int
    dealer: int
    model_hash: bytes
    start: Start
    key_share: bytes = field(repr=False)
    seed_share: bytes = field(repr=False)


def seal_packet(packet: Packet, pair: PairSecret, *, sender: str, source: WordSource) -> bytes:
    """The packet, for the other end of the pair alone."""
    start = packet.start
    head = (packet.round, packet.dealer, packet.model_hash, start.boot, start.value, start.noise)
    raw = _PACKET.pack(*head, packet.key_share, packet.seed_share)
    return pair.seal(raw, round=packet.round, sender=sender, source=source)


def open_packet(sealed: bytes, pair: PairSecret, *, dealer: int, sender: str, round: int) -> Packet:
    """The packet, or ``RemoteProtocolError`` if it is not this dealer's for this client and round."""
    raw = pair.open(sealed, round=round, sender=sender)
    if len(raw) != _PACKET.size:
        raise RemoteProtocolError("a packet of shares does not have its length", party=sender, rule="bad-packet")
    found_round, found, model, boot, value, noise, key_share, seed_share = _PACKET.unpack(raw)
    if found_round != round or found != dealer:
        raise RemoteProtocolError("a packet of shares is of another round or client", party=sender, rule="bad-packet")
    start = Start(boot=boot, value=value, noise=noise)
    return Packet(round=round, dealer=dealer, model_hash=model, start=start, key_share=key_share, seed_share=seed_share)
