"""A message that a relay passes on, from one party to another that it has no line to.

    kind 5 (1) ‖ study hash (32) ‖ from: length u8, name ‖ to: length u8, name ‖ signature (64) ‖ the message

The message inside begins like every other one; what is said in a study is sealed to its receiver, so a relay sees
sealed bytes, who speaks to whom and how much. The signature is the sender's, over both names and all of the message,
under its pinned identity: a relay can drop, delay and repeat, and can neither write nor change anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.core.errors import RemoteProtocolError, TallystickError
from tallystick.core.identifiers import check_party_name, digest
from tallystick.crypto.signing import SIGNATURE_BYTES, SigningKey, VerifyKey
from tallystick.transport.wire import HEADER_BYTES, RELAYED, head


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """From whom, to whom, and what."""

    sender: str
    to: str
    signature: bytes = field(repr=False)
    raw: bytes = field(repr=False)

    def verify(self, identity: VerifyKey) -> None:
        """Return if its sender wrote it; a refusal otherwise."""
        try:
            identity.verify(_signed(self.sender, self.to, self.raw), self.signature)
        except TallystickError:
            raise RemoteProtocolError(
                f"a message that is said to be of {self.sender}, and is not", rule="relayed-signature"
            ) from None


def _signed(sender: str, to: str, raw: bytes) -> bytes:
    return digest(b"tallystick/relayed", sender.encode(), to.encode(), raw)


def wrap(sender: str, to: str, raw: bytes, key: SigningKey) -> bytes:
    """A message, ready for a relay."""
    names = b"".join(bytes([len(name)]) + name for name in (sender.encode(), to.encode()))
    return head(RELAYED, bytes(raw[1:HEADER_BYTES])) + names + key.sign(_signed(sender, to, raw)) + raw


def unwrap(payload: bytes, party: str) -> Relayed:
    """What follows the header; ``party`` is who brought it. Whether it is genuine is for :meth:`Relayed.verify`."""
    names, at = [], 0
    for _ in range(2):
        size = payload[at] if at < len(payload) else 0
        try:
            names.append(check_party_name(payload[at + 1 : at + 1 + size].decode("ascii")))
        except (TallystickError, UnicodeDecodeError):
            raise RemoteProtocolError("a relayed message without names", rule="malformed", party=party) from None
        at += 1 + size
    raw = payload[at + SIGNATURE_BYTES :]
    if len(raw) <= HEADER_BYTES or raw[0] == RELAYED:
        raise RemoteProtocolError("a relayed message with no message in it", rule="malformed", party=party)
    return Relayed(sender=names[0], to=names[1], signature=payload[at : at + SIGNATURE_BYTES], raw=raw)
