"""A client: reads the institution's own records, and lets out secret shares of their bounded sum.

It decides to take part by its own policy before it reads a record. A data error is shown here, in full; outside it is
"unavailable", because what is wrong with the data is nobody else's business.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tallystick.core.errors import DataError, PrivacyRefused, StudyError
from tallystick.crypto.field import encode_signed
from tallystick.data.encoding import encode
from tallystick.engines.client_map import ClientMap, compile_map_of
from tallystick.engines.federation import person_codes
from tallystick.engines.simulated import padded
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.secure_sum.machine import Machine as SumMachine
from tallystick.protocol.secure_sum.messages import Inquiry, Message, Share
from tallystick.protocol.study.roster import Roster
from tallystick.roles.crash_points import CrashPoint, crashpoint
from tallystick.roles.participant import ParticipantProcess, ParticipantSession
from tallystick.roles.setup import Setup

__all__ = ["ClientProcess", "ClientSession"]

_log = logging.getLogger("tallystick.roles")


class ClientSession(ParticipantSession):
    """A study at a client."""

    key_kept = CrashPoint.CLIENT_KEY_KEPT
    ready_sent = CrashPoint.CLIENT_READY_SENT
    keys_erased = CrashPoint.CLIENT_KEYS_ERASED

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._map: ClientMap | None = None
        self._shares_out = 0

    def decide(self, setup: Setup) -> None:
        policy = self.process.parts.config.policy
        study = setup.study
        if policy is None:
            raise StudyError("this client's config states no [policy]", remedy="Say what it takes part in.")
        named = {study.study.program, study.study.program_hash or ""} & set(policy.programs)
        if policy.programs and not named:
            raise PrivacyRefused(
                f"the program {study.study.program!r} is not on this client's list",
                rule="policy-programs",
                remedy="Its data steward may add the program, or a program file's hash, under [policy] programs.",
            )
        if not setup.plan.differentially_private and not policy.allow_not_private:
            raise PrivacyRefused("exact results are not allowed here", rule="policy-allow-not-private")
        if setup.plan.differentially_private and study.privacy.epsilon > policy.max_epsilon:
            raise PrivacyRefused(
                f"epsilon = {study.privacy.epsilon:g} is above this client's limit of {policy.max_epsilon:g} a study",
                rule="policy-max-epsilon",
                remedy="Propose a lower epsilon.",
            )
        if setup.min_clients < policy.min_clients:
            raise PrivacyRefused(
                f"min_clients = {setup.min_clients} is below this client's {policy.min_clients}",
                rule="policy-min-clients",
                remedy="Propose a higher min_clients.",
            )

    def make_sum(self, setup: Setup, roster: Roster) -> tuple[SumMachine, Sequence[sums.Instruction]]:
        return sums.ClientMachine.restore(
            setup.parameters(roster), self.process.name, self.process.store.records(self.study_hash)
        )

    def connected(self, peer: str) -> None:
        super().connected(peer)
        if peer == self.process.members.aggregator and self.sum is not None:
            # Whatever was said while there was no line is lost: ask which round is open.
            question = Inquiry(study_hash=self.sum.parameters.study_hash, round=self.sum.round)
            self.sums([sums.Send(to=peer, message=question)])

    def sum_step(self, step: sums.Instruction) -> None:
        if not isinstance(step, sums.Compute) or not isinstance(self.sum, sums.ClientMachine) or self.setup is None:
            return
        try:
            plan = self.setup.plan.rounds[step.round - 1]
            values = padded(self._records().contribute(step.model, plan), self.setup.size)
        except DataError as error:
            _log.error("the data of this client cannot be used: %s", error)
            self.sums(self.sum.withdraw(step.round))
            return
        source = self.process.parts.streams(
            self.study_hash, b"shares", step.round.to_bytes(8, "little"), self.process.name.encode()
        )
        self._shares_out = 0
        self.sums(self.sum.contribute(step.round, encode_signed(values), source, self.process.now()))

    def sent(self, to: str, message: Message) -> None:
        if isinstance(message, Share):
            self._shares_out += 1
            crashpoint(CrashPoint.CLIENT_SHARE_SENT)
            if self._shares_out == len(self.process.members.servers):
                self.process.health.rounds = message.round
                crashpoint(CrashPoint.CLIENT_SHARES_SENT)

    def _records(self) -> ClientMap:
        """The records, read when the first round asks for them, and kept for the study."""
        if self._map is None:
            if self.setup is None:
                raise StudyError("the study has not started")
            study, source = self.setup.study, self.process.parts.config.data
            records = encode(
                source,
                study.schema_of_data(),
                features=study.study.features,
                target=study.study.target,
                missing=study.missing_policy(),
                party=self.process.name,
            )
            program = self.setup.design.program
            self._map = ClientMap(
                program,
                records,
                self.setup.template,
                compiled=compile_map_of(program, self.setup.template),
                persons=person_codes(study, source, records, self.process.name),
            )
        return self._map


class ClientProcess(ParticipantProcess):
    """``tallystick client start``."""

    role = "client"
    session = ClientSession
    booted = CrashPoint.CLIENT_BOOTED
