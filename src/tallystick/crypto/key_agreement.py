"""X25519 keys that live for one study, and whose they are [RFC 7748].

Each party draws a fresh key pair per study and signs the public half with its identity key, over study, party and
role, so a key taken from another study, party or role verifies nowhere. Two parties then share a channel key

    key = HKDF-SHA256( X25519(own secret, other public),
                       info = digest("tallystick/channel/v1", study, sender, receiver, sender's key, receiver's key) )

one per direction: what A sealed for B never opens as B's own. Both public keys go into the key, as in HPKE's KEM
context [RFC 9180 §4.1], because different encodings can give the same X25519 secret. Refused before any of it:
encodings that are not canonical (a second spelling of somebody's key), points of low order (the secret would be
all zero, RFC 7748 §6.1), one's own key sent back, and one key held by two parties.

The study ends, ``erase()`` is called, and what was recorded on the wire stays closed (forward secrecy). Erasing
overwrites the buffers held here; copies the interpreter made in passing are only dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import HASH_BYTES, check_party_name, digest
from tallystick.core.randomness import WordSource
from tallystick.core.redaction import Secret
from tallystick.crypto.signing import SigningKey, VerifyKey

PUBLIC_BYTES = 32
_FIELD = 2**255 - 19
_STATEMENT = b"tallystick/study-key/v1"
_CHANNEL = b"tallystick/channel/v1"

# u-coordinates of the points whose order divides 8, on the curve and on its twist: 0, 1, −1 and the two of order 8.
_LOW_ORDER = frozenset(
    bytes.fromhex(u)
    for u in (
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    )
)


def check_public_key(public: bytes, *, party: str | None = None) -> bytes:
    """The key itself, if it is the one encoding of a point of large order; otherwise its sender is refused."""
    if not isinstance(public, bytes) or len(public) != PUBLIC_BYTES:
        _refuse(f"a key-agreement key does not have {PUBLIC_BYTES} bytes", party)
    if int.from_bytes(public, "little") >= _FIELD:
        _refuse("a key-agreement key is not in its one canonical encoding", party)
    if public in _LOW_ORDER:
        _refuse("a key-agreement key of low order would give everybody the same secret", party)
    return public


class AgreementKey:
    """One party's private key for one study; ``erase()`` ends it."""

    __slots__ = ("_public", "_secret")

    def __init__(self, secret: Secret | bytes) -> None:
        raw = secret.reveal() if isinstance(secret, Secret) else secret
        if len(raw) != PUBLIC_BYTES:
            raise LocalProtocolError(
                f"a key-agreement key has {PUBLIC_BYTES} bytes", remedy="Use AgreementKey.generate(source)."
            )
        self._secret = bytearray(raw)
        self._public = X25519PrivateKey.from_private_bytes(self._secret).public_key().public_bytes_raw()

    @classmethod
    def generate(cls, source: WordSource) -> AgreementKey:
        """A fresh key from 32 bytes of ``source``."""
        return cls(source.bytes(PUBLIC_BYTES))

    @property
    def public(self) -> bytes:
        """The half that others may know; still told after ``erase()``."""
        return self._public

    def agree(self, public: bytes, *, party: str | None = None) -> Secret:
        """The secret shared with the owner of ``public``, never all zero, never with oneself."""
        if not self._secret:
            raise LocalProtocolError("this study's key was erased", remedy="Keys end with their study.")
        if check_public_key(public, party=party) == self._public:
            _refuse("our own key-agreement key was sent back to us", party)
        try:
            shared = X25519PrivateKey.from_private_bytes(self._secret).exchange(
                X25519PublicKey.from_public_bytes(public)
            )
        except ValueError:  # an all-zero secret
            _refuse("a key-agreement key gives an all-zero secret", party)
        return Secret(shared)

    def sign(self, identity: SigningKey, *, study_hash: bytes, party: str, role: str) -> StudyKey:
        """The public half with its owner's signature: what is sent to the others."""
        statement = _statement(study_hash, party, role, self._public)
        return StudyKey(
            study_hash=study_hash, party=party, role=role, public=self._public, signature=identity.sign(statement)
        )

    def reveal(self) -> Secret:
        """The private bytes, for the role that keeps its key through a restart (file or row of mode 0600)."""
        return Secret(bytes(self._secret))

    def erase(self) -> None:
        """Overwrite the private bytes; nothing can be agreed any more."""
        self._secret[:] = bytes(len(self._secret))
        self._secret = bytearray()

    def __repr__(self) -> str:
        return f"AgreementKey({f'{PUBLIC_BYTES} bytes' if self._secret else 'erased'})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("agreement keys are not serialised")


@dataclass(frozen=True, kw_only=True)
class StudyKey:
    """A party's public key for one study, signed by its identity key. Public; compared and sent as it is."""

    study_hash: bytes
    party: str
    role: str
    public: bytes
    signature: bytes

    def verify(self, identity: VerifyKey) -> None:
        """Return if this party's identity signed exactly this key for this study and role; raise otherwise."""
        check_public_key(self.public, party=self.party)
        identity.verify(_statement(self.study_hash, self.party, self.role, self.public), self.signature)


def check_study_keys(
    keys: Sequence[StudyKey], *, study_hash: bytes, members: Mapping[str, tuple[str, VerifyKey]]
) -> dict[str, StudyKey]:
    """The keys by party, once every one is signed for this study by a member in its role and no two are the same.

    ``members`` maps a party to its role and identity, as pinned in the consortium file.
    """
    found: dict[str, StudyKey] = {}
    owners: dict[bytes, str] = {}
    for key in keys:
        if key.party not in members:
            _refuse("a study key comes from no member of the consortium", key.party)
        role, identity = members[key.party]
        if key.study_hash != study_hash or key.role != role:
            _refuse("a study key was signed for another study or role", key.party)
        if key.party in found:
            _refuse("a party has two study keys", key.party)
        key.verify(identity)
        if key.public in owners:
            _refuse(f"a study key is the same as that of {owners[key.public]}", key.party)
        found[key.party] = key
        owners[key.public] = key.party
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelKey:
    """The 32-byte key of one direction between two parties of one study; ``erase()`` ends it."""

    study_hash: bytes
    sender: str
    receiver: str
    _key: bytearray = field(repr=False)

    def reveal(self) -> bytes:
        """The key bytes, for the cipher alone."""
        if not self._key:
            raise LocalProtocolError("this channel's key was erased", remedy="Keys end with their study.")
        return bytes(self._key)

    def erase(self) -> None:
        """Overwrite and drop the key."""
        self._key[:] = bytes(len(self._key))
        self._key.clear()

    def __reduce__(self) -> NoReturn:
        raise TypeError("channel keys are not serialised")


def derive_channel(own: AgreementKey, *, sender: StudyKey, receiver: StudyKey) -> ChannelKey:
    """The key for what ``sender`` sends to ``receiver``; ``own`` is the private key of either of the two.

    Verify both study keys first (:func:`check_study_keys`); here they must only differ and belong to one study.
    """
    if own.public not in (sender.public, receiver.public):
        raise LocalProtocolError("a channel needs the key of one of its ends", remedy="Pass this party's own key.")
    other = receiver if own.public == sender.public else sender
    if sender.study_hash != receiver.study_hash:
        _refuse("a study key was signed for another study or role", other.party)
    if sender.party == receiver.party:
        _refuse("a channel to oneself has no secret", other.party)
    shared = own.agree(other.public, party=other.party)
    ends = (sender.party.encode(), receiver.party.encode(), sender.public, receiver.public)
    info = digest(_CHANNEL, sender.study_hash, *ends)
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(shared.reveal())
    return ChannelKey(study_hash=sender.study_hash, sender=sender.party, receiver=receiver.party, _key=bytearray(key))


def _statement(study_hash: bytes, party: str, role: str, public: bytes) -> bytes:
    if len(study_hash) != HASH_BYTES:
        raise LocalProtocolError("the study hash is not 32 bytes", remedy="Pass the SHA-256 of the study.")
    return digest(_STATEMENT, study_hash, check_party_name(party).encode(), role.encode(), public)


def _refuse(cause: str, party: str | None) -> NoReturn:
    raise RemoteProtocolError(
        cause,
        rule="bad-study-key",
        party=party,
        remedy="The key was not used; let that party draw a fresh one for this study.",
    )
