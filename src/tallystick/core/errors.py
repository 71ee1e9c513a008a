"""Every error a user can meet.

    TallystickError
      StudyError            the study, schema, program or data are wrong            exit 2
        BoundsError         a public bound is missing or impossible                 exit 2
        TrustModelError     this estimator does not run under this trust model      exit 2
        DataError           a record breaks the declared policy                     exit 2
      PrivacyRefused        a privacy rule forbids it                               exit 3
        BudgetExceeded      the data set cannot pay for it                          exit 3
      NotApproved           the data stewards have not agreed to it                 exit 5
      RoundAborted          a round ended without a release                         exit 4
        TooFewParties       fewer than ``min_clients`` took part                    exit 4
      ProtocolError         a message broke the protocol                            exit 4
        LocalProtocolError  ... and it was ours: a bug on this side
        RemoteProtocolError ... and it was theirs; ``party`` says whose
      VerificationError     a hash, signature or ledger does not verify             exit 6

An error says who (``party``), when (``round``), why (``cause``) and what to do (``remedy``), and may be
shown to anyone: it never carries a record or a value computed from one. The one exception is a :class:`DataError` of a
check or a simulation, whose caller holds the records: it may count rows and name a value that is not declared.
"""

from __future__ import annotations

from typing import Any


class TallystickError(Exception):
    """Base of all errors; ``exit_code`` is what the command line returns for it."""

    exit_code = 1

    def __init__(
        self,
        cause: str,
        *,
        remedy: str | None = None,
        rule: str | None = None,
        party: str | None = None,
        round: int | None = None,
    ) -> None:
        self.cause = cause
        self.remedy = remedy
        self.rule = rule
        self.party = party
        self.round = round
        super().__init__(cause)

    def __str__(self) -> str:
        where = [f"party {self.party}"] if self.party is not None else []
        where += [f"round {self.round}"] if self.round is not None else []
        head = f"{', '.join(where)}: " if where else ""
        rule = f" [{self.rule}]" if self.rule else ""
        text = f"{head}{self.cause}{rule}"
        if not self.remedy:
            return text
        return f"{text}{'' if text.endswith(('.', '!', '?')) else '.'} {self.remedy}"

    def as_dict(self) -> dict[str, Any]:
        """The object printed by ``--format json``."""
        return {
            "code": self.exit_code,
            "rule": self.rule or type(self).__name__,
            "party": self.party,
            "round": self.round,
            "cause": self.cause,
            "remedy": self.remedy,
        }


class StudyError(TallystickError, ValueError):
    """The study file, schema, program or request is not usable as it stands."""

    exit_code = 2


class BoundsError(StudyError):
    """A public bound is missing or impossible; bounds are declared, never read from data."""


class TrustModelError(StudyError):
    """The estimator does not run under the trust model asked for."""


class DataError(StudyError):
    """A data source cannot be read, or a record breaks the declared policy."""


class PrivacyRefused(TallystickError):  # noqa: N818 - a refusal is not a malfunction
    """A plan whose privacy claim cannot hold, refused with the name of the rule."""

    exit_code = 3


class BudgetExceeded(PrivacyRefused):
    """The data set's remaining budget does not cover the charge."""


class NotApproved(TallystickError):  # noqa: N818
    """The study lacks the approvals it needs, or they were withdrawn or have expired."""

    exit_code = 5


class RoundAborted(TallystickError):  # noqa: N818
    """The round ended with nothing released."""

    exit_code = 4


class TooFewParties(RoundAborted):
    """Fewer clients than ``min_clients`` reached every server."""


class ProtocolError(TallystickError):
    """A message that the protocol does not allow."""

    exit_code = 4


class LocalProtocolError(ProtocolError):
    """This side would have broken the protocol: a bug here, nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The other side broke the protocol; the message was refused and nothing of it kept."""


class VerificationError(TallystickError):
    """A hash, signature or ledger head does not verify."""

    exit_code = 6


class DataWarning(UserWarning):
    """Records that a study would read otherwise than was meant; says what the caller's own data hold."""


class PrivacyWarning(UserWarning):
    """Something that is allowed and costs privacy the caller may not have counted."""
