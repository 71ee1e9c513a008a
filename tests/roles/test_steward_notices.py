"""A steward is told of a waiting study: once, with public facts alone, and never in a flood."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from mail_stub import MailStub, mail_stub

from tallystick.core.errors import RoundAborted, StudyError
from tallystick.core.identifiers import format_hash
from tallystick.roles.identity.notify_settings import Notify
from tallystick.roles.identity.role_config import parse_role_config
from tallystick.roles.steward import delivery, steward_notices
from tallystick.roles.steward.delivery import Waiting, deliver, message
from tallystick.roles.steward.steward_notices import StewardNotices

CLIENT = """
[role]
name = "Hospital A"
role = "client"
certificate = "certificate.pem"
key = "tls.key"
identity = "identity.key"
state = "state"
[data]
source = "records.parquet"
"""
NOTED = "import json, os, sys; open(sys.argv[1], 'a').write(json.dumps([sys.argv[2:], dict(os.environ)]) + '\\n')"


def study(number: int, name: str = "income") -> Waiting:
    return Waiting(name=name, hash=format_hash(number.to_bytes(32, "big")), analyst="lab", epsilon="0.5")


@pytest.fixture
def mails() -> Iterator[MailStub]:
    with mail_stub() as server:
        yield server


@pytest.fixture
def notify(mails: MailStub) -> Notify:
    return Notify(
        email_to=("steward@hospital.example", "deputy@hospital.example"),
        email_from="tallystick@hospital.example",
        smtp=mails.address,
        smtp_security="none",
    )


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Told:
    """The notices of one client, sent at once."""

    def __init__(self, folder: Path, notify: Notify) -> None:
        self.folder, self.notify, self.clock = folder, notify, Clock()
        self.decided: set[str] = set()
        self.open()

    def open(self) -> None:
        file = self.folder / "governance.sqlite"
        self.notices = StewardNotices(file, self.notify, party="Hospital A", wall=self.clock)

    def restart(self) -> None:
        self.notices.close()
        self.open()

    def due(self, seconds: float = 0.0) -> None:
        self.clock.now += seconds
        self.notices.due(lambda study: format_hash(study) not in self.decided)
        if self.notices._sending is not None:
            self.notices._sending.join()


@pytest.fixture
def told(tmp_path: Path, notify: Notify) -> Iterator[Told]:
    made = Told(tmp_path, notify)
    yield made
    made.notices.close()


def hook(folder: Path) -> tuple[Notify, Path]:
    file = folder / "noted"
    return Notify(command=(sys.executable, "-c", NOTED, str(file))), file


# -- what is told ------------------------------------------------------------------------------------------------------


def test_a_mail_says_what_everybody_was_told(told: Told, mails: MailStub) -> None:
    told.notices.add(study(1))
    told.due()
    ((receivers, mail),) = mails.mails
    assert receivers == ["steward@hospital.example", "deputy@hospital.example"]
    assert mail["Subject"] == "Tallystick: a study waits for a decision"
    text = mail.get_content()
    assert "income: epsilon 0.5, proposed by lab" in text
    assert f"tallystick study show {study(1).hash[7:19]}" in text


def test_a_command_gets_the_facts_without_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notify, file = hook(tmp_path)
    monkeypatch.setenv("SECRET_OF_THE_ROLE", "a password")
    spiteful = "$(touch hacked); `id` --help\\n"
    deliver(notify, "Hospital A", [study(1), study(2, spiteful)])
    ((arguments, environment),) = map(json.loads, file.read_text().splitlines())
    assert arguments == [study(2).hash]
    own = {key.removeprefix("TALLYSTICK_"): value for key, value in environment.items() if "TALLYSTICK_" in key}
    assert own == {
        "PARTY": "Hospital A",
        "WAITING": "2",
        "STUDY": spiteful,
        "HASH": study(2).hash,
        "ANALYST": "lab",
        "EPSILON": "0.5",
    }
    assert "SECRET_OF_THE_ROLE" not in environment
    assert not list(tmp_path.glob("hacked"))


def test_a_notice_can_hold_nothing_but_public_facts(notify: Notify) -> None:
    """Its whole content is a function of these four facts, the client's name and the operator's own settings."""
    assert {field.name for field in fields(Waiting)} == {"name", "hash", "analyst", "epsilon"}
    spiteful = replace(study(1), name="Bcc: everybody@example.org", analyst="lab\u202e")
    mail = message(notify, "Hospital A", [spiteful])
    fixed = {"Subject", "From", "To", "Date", "Message-ID", "Auto-Submitted", "Content-Type"}
    assert set(mail.keys()) <= fixed | {"Content-Transfer-Encoding", "MIME-Version"}
    for value in asdict(spiteful).values():
        assert not [header for header in mail.values() if value in header]


def test_what_strangers_write_is_one_line() -> None:
    name = "income\r\nBcc: x@example.org\u202e" + "n" * 500
    text = json.dumps({"study": {"name": name}, "privacy": {"epsilon": 0.25}})
    waiting = Waiting.of(SimpleNamespace(signer="lab", body={"study": text, "hash": study(1).hash}))
    assert waiting.name.isprintable()
    assert len(waiting.name) <= 100
    assert waiting.epsilon == "0.25"


# -- when --------------------------------------------------------------------------------------------------------------


def test_a_flood_of_proposals_is_one_mail_in_ten_minutes(told: Told, mails: MailStub) -> None:
    told.notices.add(study(0))
    told.due()
    for number in range(1, 300):
        told.notices.add(study(number, f"study {number}"))
        told.due(1.0)
    assert len(mails.mails) == 1
    told.due(steward_notices.APART_SECONDS)
    assert len(mails.mails) == 2
    second = mails.mails[1][1]
    assert second["Subject"] == "Tallystick: 299 studies wait for a decision"
    assert f"and {299 - delivery.LISTED} more" in second.get_content()
    told.due(steward_notices.APART_SECONDS)
    assert len(mails.mails) == 2  # each is told of once


def test_a_steady_drip_is_a_few_mails_a_day(told: Told, mails: MailStub) -> None:
    for number in range(200):
        told.notices.add(study(number))
        told.due(steward_notices.APART_SECONDS)
        assert len(mails.mails) <= steward_notices.MOST_A_DAY * (1 + number * steward_notices.APART_SECONDS // 86_400)
    assert len(mails.mails) >= steward_notices.MOST_A_DAY


def test_a_restart_tells_nothing_again(told: Told, mails: MailStub) -> None:
    for _ in range(3):
        told.notices.add(study(1))  # as a client does that hears of everything anew
        told.due()
        told.restart()
    told.notices.add(study(2))
    told.due()
    assert len(mails.mails) == 1  # nor does a loop of crashes and new proposals get around the ten minutes
    told.due(steward_notices.APART_SECONDS)
    assert "study show" in mails.mails[1][1].get_content()


def test_what_is_decided_meanwhile_is_not_told(told: Told, mails: MailStub) -> None:
    told.notices.add(study(1))
    told.decided.add(study(1).hash)
    told.due()
    assert mails.mails == []


def test_a_clock_set_back_does_not_silence_it(told: Told, mails: MailStub) -> None:
    told.notices.add(study(1))
    told.due()
    told.notices.add(study(2))
    told.due(-1e6)
    assert len(mails.mails) == 2


# -- when it fails -----------------------------------------------------------------------------------------------------


def test_a_failure_is_logged_and_tried_again(told: Told, mails: MailStub, caplog: pytest.LogCaptureFixture) -> None:
    mails.refuse = b"550 no such user\r\n"
    told.notices.add(study(1))
    with caplog.at_level(logging.WARNING, logger="tallystick.roles"):
        logging.getLogger("tallystick").propagate = True
        told.due()
    assert "was not told of 1 waiting studies" in caplog.text
    assert "steward-not-told" in caplog.text
    mails.refuse = b""
    told.due(1.0)
    assert mails.mails == []  # a failed attempt is an attempt
    told.due(steward_notices.APART_SECONDS)
    assert len(mails.mails) == 1


@pytest.mark.parametrize("words", [("/nowhere/tell",), (sys.executable, "-c", "raise SystemExit(3)")])
def test_a_command_that_fails_is_an_error_of_its_own(words: tuple[str, ...]) -> None:
    with pytest.raises(RoundAborted, match=r"does not start|ended with 3") as caught:
        deliver(Notify(command=words), "Hospital A", [study(1)])
    assert caught.value.remedy


def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "COMMAND_SECONDS", 0.2)
    with pytest.raises(RoundAborted, match="took more than"):
        deliver(Notify(command=("/bin/sh", "-c", "sleep 60 & sleep 60")), "Hospital A", [study(1)])


def test_one_way_fails_and_the_other_is_tried(notify: Notify, mails: MailStub) -> None:
    with pytest.raises(RoundAborted, match="does not start"):
        deliver(replace(notify, command=("/nowhere/tell",)), "Hospital A", [study(1)])
    assert len(mails.mails) == 1


def test_starttls_is_insisted_on(notify: Notify, mails: MailStub) -> None:
    with pytest.raises(RoundAborted, match="did not take the mail"):
        deliver(replace(notify, smtp_security="starttls"), "Hospital A", [study(1)])
    assert mails.mails == []


# -- settings ----------------------------------------------------------------------------------------------------------


def test_the_section(tmp_path: Path) -> None:
    mail = 'email_to = ["s@h.example"]\nemail_from = "t@h.example"\nsmtp = "mail.h.example:587"\n'
    login = 'smtp_user = "t"\nsmtp_password = "smtp.password"\n'
    found = parse_role_config(f"{CLIENT}[notify]\n{mail}{login}", tmp_path / "role.toml").notify
    assert found == Notify(
        email_to=("s@h.example",),
        email_from="t@h.example",
        smtp="mail.h.example:587",
        smtp_user="t",
        smtp_password=tmp_path / "smtp.password",
    )
    assert parse_role_config(CLIENT, tmp_path / "role.toml").notify is None


@pytest.mark.parametrize(
    "section",
    [
        "",
        "command = []",
        'command = "tell"',
        'command = ["a\\u0007"]',
        'email_to = ["s@h.example"]',
        'email_to = ["s@h.example\\nBcc: x@y"]\nemail_from = "t@h.example"\nsmtp = "m:25"',
        'email_to = ["s@h.example"]\nemail_from = "T <t@h.example>"\nsmtp = "m:25"',
        'email_to = ["s@h.example"]\nemail_from = "t@h.example"\nsmtp = "m"',
        'command = ["x"]\nsmtp_user = "t"',
        'command = ["x"]\nsmtp_user = "t"\nsmtp_password = "p"\nsmtp_security = "none"',
        'command = ["x"]\nshell = true',
    ],
)
def test_settings_that_cannot_be(section: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"notify|is not an address") as caught:
        parse_role_config(f"{CLIENT}[notify]\n{section}\n", tmp_path / "role.toml")
    assert caught.value.remedy


def test_only_a_client_has_a_steward() -> None:
    analyst = CLIENT.replace('"client"', '"analyst"').partition("[data]")[0]
    with pytest.raises(StudyError, match="notify"):
        parse_role_config(f'{analyst}[notify]\ncommand = ["x"]\n', Path("/x/role.toml"))
