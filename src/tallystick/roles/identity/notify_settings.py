"""``[notify]`` of a client's role file: whom to tell that a study waits for a person, and how.

[notify]
command = ["/usr/local/bin/tell-steward"]     run without a shell; facts in its environment, the hash as argument
email_to = ["steward@hospital.example"]       with email_from and smtp = "host:port"
smtp_security = "starttls"                    or "tls", "none"
smtp_user, smtp_password                      the latter a file of mode 0600
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NoReturn

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from tallystick.core.errors import StudyError
from tallystick.core.findings import Table
from tallystick.core.readable_text import what_is_unreadable
from tallystick.roles.identity.consortium import check_address

MOST_ADDRESSES = 20
_MAILBOX = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,250}")


def _word(text: str) -> str:
    if not text or what_is_unreadable(text):
        raise PydanticCustomError("text", "is empty or holds control characters")
    return text


def _mailbox(text: str) -> str:
    if not _MAILBOX.fullmatch(text):
        _refuse(f"has {ascii(text)[:80]} for an e-mail address", "Write it plainly: steward@hospital.example.")
    return text


def _refuse(cause: str, remedy: str) -> NoReturn:
    raise StudyError(f"[notify] {cause}", rule="config", remedy=remedy)


_Word = Annotated[str, Field(strict=True), AfterValidator(_word)]
_Mailbox = Annotated[_Word, AfterValidator(_mailbox)]


class NotifyTable(Table):
    """The section as it is written."""

    command: Annotated[tuple[_Word, ...], Field(strict=False)] = ()
    email_to: Annotated[tuple[_Mailbox, ...], Field(strict=False, max_length=MOST_ADDRESSES)] = ()
    email_from: _Mailbox | None = None
    smtp: Annotated[_Word, AfterValidator(check_address)] | None = None
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    smtp_user: _Word | None = None
    smtp_password: _Word | None = None

    @model_validator(mode="after")
    def _whole(self) -> NotifyTable:
        if self.email_to and (self.smtp is None or self.email_from is None):
            _refuse("has email_to without smtp or email_from", 'Add smtp = "host:port" and email_from = "…".')
        if not self.email_to and not self.command:
            _refuse("tells nobody", "Add command or email_to, or leave [notify] out.")
        if (self.smtp_user is None) is not (self.smtp_password is None):
            _refuse("has one of smtp_user and smtp_password", "Give both, or none.")
        if self.smtp_password is not None and self.smtp_security == "none":
            _refuse("would send smtp_password in the clear", 'Write smtp_security = "starttls" or "tls".')
        return self

    def settled(self, folder: Path) -> Notify:
        """With paths made absolute."""
        password = None if self.smtp_password is None else folder / self.smtp_password
        return Notify(
            command=self.command,
            email_to=self.email_to,
            email_from=self.email_from or "",
            smtp=self.smtp or "",
            smtp_security=self.smtp_security,
            smtp_user=self.smtp_user,
            smtp_password=password,
        )


@dataclass(frozen=True, kw_only=True)
class Notify:
    """Whom to tell, and how."""

    command: tuple[str, ...] = ()
    email_to: tuple[str, ...] = ()
    email_from: str = ""
    smtp: str = ""
    smtp_security: str = "starttls"
    smtp_user: str | None = None
    smtp_password: Path | None = None

    @property
    def words(self) -> str:
        """Who is told, for the doctor."""
        told = [f"the command {self.command[0]}"] if self.command else []
        told += [f"{', '.join(self.email_to)} through {self.smtp}"] if self.email_to else []
        return " and ".join(told)
