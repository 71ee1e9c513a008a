"""One notice on its way: what it says, the command that is run with it, the e-mail that carries it.

It holds public facts of proposals and nothing else: name, hash, analyst, epsilon, as every institution was told them.
Nothing here sees a record, a ledger or a decision. What a stranger wrote is one readable line before it gets here; no
shell reads it, and no header of a mail holds it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

from tallystick.core.errors import RoundAborted, TallystickError
from tallystick.core.readable_text import one_line
from tallystick.protocol.governance.statements import Statement
from tallystick.roles.identity.consortium import split_address
from tallystick.roles.identity.identity_files import read_private
from tallystick.roles.identity.notify_settings import Notify
from tallystick.study.proposed import proposed_study

COMMAND_SECONDS, MAIL_SECONDS = 30.0, 20.0
LISTED = 20
_PASSED_ON = ("HOME", "LANG", "PATH")


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A study that waits for a person: what everybody was told of it."""

    name: str
    hash: str
    analyst: str
    epsilon: str

    @classmethod
    def of(cls, proposal: Statement) -> Waiting:
        """The facts of a proposal that a notice may hold."""
        study = proposed_study(proposal.body["study"])
        epsilon = study.number("privacy", "epsilon")
        return cls(
            name=one_line(study.name, 100),
            hash=str(proposal.body["hash"]),
            analyst=one_line(proposal.signer, 100),
            epsilon="not stated" if epsilon is None else f"{epsilon:g}",
        )


def deliver(notify: Notify, party: str, waiting: Sequence[Waiting]) -> None:
    """Tell of these, the newest last, in every way that is set; the first failure is raised once all were tried."""
    failed: TallystickError | None = None
    for way in (run_command if notify.command else None, send_mail if notify.email_to else None):
        try:
            if way is not None:
                way(notify, party, waiting)
        except TallystickError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def run_command(notify: Notify, party: str, waiting: Sequence[Waiting]) -> None:
    """Run the institution's own command, without a shell and for a limited time; what it prints is not kept."""
    newest = waiting[-1]
    facts = {
        "PARTY": party,
        "WAITING": str(len(waiting)),
        "STUDY": newest.name,
        "HASH": newest.hash,
        "ANALYST": newest.analyst,
        "EPSILON": newest.epsilon,
    }
    environment = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    environment |= {f"TALLYSTICK_{key}": value for key, value in facts.items()}
    try:
        process = subprocess.Popen(
            [*notify.command, newest.hash],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise _failed(f"the command {notify.command[0]} does not start: {error.strerror}") from None
    try:
        code = process.wait(COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise _failed(f"the command {notify.command[0]} took more than {COMMAND_SECONDS:g} s") from None
    if code != 0:
        raise _failed(f"the command {notify.command[0]} ended with {code}")


def message(notify: Notify, party: str, waiting: Sequence[Waiting]) -> EmailMessage:
    """The mail. Its headers are the operator's words and ours; what strangers wrote is in the body alone."""
    count = len(waiting)
    what = "a study waits for a decision" if count == 1 else f"{count} studies wait for a decision"
    lines = [f"At {party}, {what}.", ""]
    for one in reversed(waiting[-LISTED:]):
        lines += [f"  {one.name or '(no name)'}: epsilon {one.epsilon}, proposed by {one.analyst}"]
        lines += [f"  tallystick study show {one.hash.removeprefix('sha256:')[:12]}", ""]
    lines += [f"  and {count - LISTED} more: tallystick study list", ""] if count > LISTED else []
    lines += [
        "Nothing runs and nothing is spent before somebody decides. This mail holds what every institution of the"
    ]
    lines += ["consortium was told, and nothing about your records."]
    mail = EmailMessage()
    mail["Subject"] = f"Tallystick: {what}"
    mail["From"], mail["To"] = notify.email_from, ", ".join(notify.email_to)
    mail["Date"], mail["Message-ID"] = formatdate(), make_msgid(domain=notify.email_from.rpartition("@")[2])
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content("\n".join(lines) + "\n")
    return mail


def send_mail(notify: Notify, party: str, waiting: Sequence[Waiting]) -> None:
    """Hand the mail to the institution's own mail server."""
    import smtplib  # slow to import, and rarely used
    import ssl

    host, port = split_address(notify.smtp)
    trusted = ssl.create_default_context()
    password = None if notify.smtp_password is None else read_private(notify.smtp_password)
    try:
        line = (
            smtplib.SMTP_SSL(host, port, timeout=MAIL_SECONDS, context=trusted)
            if notify.smtp_security == "tls"
            else smtplib.SMTP(host, port, timeout=MAIL_SECONDS)
        )
        with line:
            if notify.smtp_security == "starttls":
                line.starttls(context=trusted)
            if password is not None:
                line.login(notify.smtp_user or "", password.reveal().decode().strip())
            line.send_message(message(notify, party, waiting))
    except (OSError, ValueError, smtplib.SMTPException) as error:
        said = one_line(str(error), 200) or type(error).__name__
        raise _failed(f"the mail server {notify.smtp} did not take the mail: {said}") from None


def _failed(cause: str) -> RoundAborted:
    return RoundAborted(
        cause, rule="steward-not-told", remedy="Correct [notify] in the role file; then: doctor --test-notice."
    )
