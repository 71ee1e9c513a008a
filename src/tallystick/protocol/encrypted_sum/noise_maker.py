"""What the two noise makers of an encrypted sum have in common: one draw per round, kept first, under one start."""

from __future__ import annotations

from typing import NotRequired, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.core.randomness import WordSource
from tallystick.crypto.prg import SEED_BYTES
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.boots import BOOT_VALUE_BYTES, BootBook, MemoryBoots, SeenBoots, Start
from tallystick.protocol.encrypted_sum.instructions import Instruction
from tallystick.protocol.encrypted_sum.machine import EncryptedSumMachine
from tallystick.protocol.encrypted_sum.messages import HashOpen, noise_commitment
from tallystick.protocol.encrypted_sum.parameters import EncryptedSumParameters
from tallystick.protocol.encrypted_sum.records import NoiseRecord, RoundRecord
from tallystick.protocol.instructions import Persist
from tallystick.protocol.noise_draws import draw_once
from tallystick.protocol.noise_source import NoiseSource
from tallystick.protocol.summing import told_model

PROXY, DATA_USER = 0, 1
"""Whose start is meant."""


class MakerParts(TypedDict):
    """What a noise maker is made of, beside the study's parameters and its name."""

    key: SigningKey
    noise: NoiseSource
    source: WordSource
    """Blinds, and what drowns errors."""
    boot: NotRequired[int]
    boot_value: NotRequired[bytes]
    boots: NotRequired[BootBook | None]


class NoiseMaker(EncryptedSumMachine):
    """Base of proxy and data user."""

    def __init__(
        self, parameters: EncryptedSumParameters, name: str, state: object, **parts: Unpack[MakerParts]
    ) -> None:
        super().__init__(parameters, name, state)  # type: ignore[arg-type]
        self._signing, self._noise_source, self._source = parts["key"], parts["noise"], parts["source"]
        pinned = parameters.proxy_key if name == parameters.proxy else parameters.data_user_key
        if self._signing.public != pinned:
            raise LocalProtocolError("this party's key is not the one pinned in the study", party=name)
        self._boot, self._boot_value = parts.get("boot", 0), parts.get("boot_value", bytes(BOOT_VALUE_BYTES))
        boots = parts.get("boots")
        keys = (parameters.proxy_key, parameters.data_user_key)
        self._seen = SeenBoots(keys, boots if boots is not None else MemoryBoots())
        self._record: RoundRecord | None = None
        self._noise: NDArray[np.int64] | None = None  # gone once the round is over
        self._drawn: NoiseRecord | None = None  # kept for a round that was not opened before a restart

    def _open_with_noise(self, message: HashOpen) -> list[Instruction]:
        """Admit, draw once (or take what was drawn and kept), commit. Raises ``PrivacyRefused`` before anything."""
        admitted = self._noise_source.admit(message.round, told_model(message))
        kept, self._drawn = self._drawn, None
        drawn = draw_once(
            self._noise_source,
            NoiseRecord,
            round=message.round,
            admitted=admitted,
            kept=kept,
            size=self.parameters.size,
            party=self.name,
        )
        blind = self._source.bytes(SEED_BYTES)
        commitment = noise_commitment(blind, self.study_hash, message.round, self._boot_value, drawn.raw)
        self._record = RoundRecord(
            round=message.round,
            deadline_ms=message.deadline_ms,
            model_hash=message.model_hash,
            start=Start(boot=self._boot, value=self._boot_value, noise=commitment),
        )
        self._noise, self.round = drawn.noise, message.round
        return [*drawn.keep, Persist("round", self._record.to_bytes())]

    def _recall(self, records: dict[str, bytes]) -> None:
        """Round and noise as they were kept. Noise is read, never drawn anew for a round that was opened."""
        drawn = NoiseRecord.from_bytes(records["noise"]) if "noise" in records else None
        self._record = RoundRecord.from_bytes(records["round"]) if "round" in records else None
        if self._record is not None:
            self.round = self._record.round
        if drawn is not None and drawn.round == self.round:
            self._noise = drawn.noise
        elif drawn is not None and drawn.round > self.round:
            self._drawn = drawn
