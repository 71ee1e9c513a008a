"""The doctor: a healthy role is found healthy, and every planted fault is found, named and given a remedy."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from tallystick.application import consortium as command
from tallystick.application import doctor as room
from tallystick.application.demo.free_ports import free_ports
from tallystick.application.doctor import describe
from tallystick.application.doctor import examine as doctor
from tallystick.roles.identity.identity_files import read_consortium, wall_clock
from tallystick.roles.identity.role_config import load_role_config

NOW = wall_clock()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A consortium of one server, one aggregator and one client, nobody running."""
    monkeypatch.setattr(room, "_unsynchronised", lambda: False)  # the test machine's clock is not under test
    made = tmp_path / "con"
    server, aggregator = free_ports(2)
    command.create("Trial", made, now=NOW)
    command.enrol("Server 1", role="server", directory=made, address=f"127.0.0.1:{server}", now=NOW)
    command.enrol("Sum", role="aggregator", directory=made, address=f"127.0.0.1:{aggregator}", now=NOW)
    command.enrol("Hospital A", role="client", directory=made, data="a.csv", now=NOW)
    (made / "hospital-a" / "a.csv").write_text("age,sex\n61,f\n")
    return made


@contextmanager
def running(
    folder: Path, slug: str, *, certificate: Path | None = None, authority: bytes | None = None
) -> Iterator[None]:
    """Something that speaks this role's TLS at its address."""
    config = load_role_config(folder / slug / "role.toml")
    server = grpc.server(ThreadPoolExecutor(max_workers=1))
    credentials = grpc.ssl_server_credentials(
        [(config.key.read_bytes(), (certificate or config.certificate).read_bytes())],
        authority or read_consortium(config.consortium).ca_certificate,
        require_client_auth=True,
    )
    assert config.listen is not None
    server.add_secure_port(config.listen, credentials)
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


def look(folder: Path, slug: str = "hospital-a", **more: Any) -> dict[str, Any]:
    report = doctor(folder / slug / "role.toml", now=more.pop("now", None) or wall_clock(), timeout=2.0)
    json.dumps(report, allow_nan=False)
    for finding in report["findings"]:
        assert finding["status"] in ("ok", "warning", "problem")
        assert finding["status"] == "ok" or finding["remedy"], finding
        assert finding["what"] in describe(report)
    return report


def problems(report: dict[str, Any], status: str = "problem") -> dict[str, str]:
    return {f["check"]: f["what"] for f in report["findings"] if f["status"] == status}


def test_a_healthy_client(folder: Path) -> None:
    with running(folder, "server-1"), running(folder, "sum"):
        report = look(folder)
    assert report["ok"]
    assert problems(report) == problems(report, "warning") == {}
    said = describe(report)
    assert "columns: age, sex" in said
    assert "61" not in "".join(f["what"] for f in report["findings"] if f["check"] == "data")  # names, never cells
    assert said.count("certificates fine on both sides") == 2
    assert "fit to run" in said


def test_a_healthy_server_running_or_not(folder: Path) -> None:
    with running(folder, "sum"):
        idle = look(folder, "server-1")
        with running(folder, "server-1"):
            busy = look(folder, "server-1")
    assert idle["ok"]
    assert busy["ok"]
    assert "is free" in describe(idle)
    assert "this role is running" in describe(busy)
    assert look(folder, "sum")["ok"]  # the aggregator dials nobody


def test_nobody_there(folder: Path) -> None:
    report = look(folder)
    assert not report["ok"]
    assert "nothing listens there" in problems(report)["reach"]


def test_a_stranger_listens_at_our_port(folder: Path) -> None:
    config = load_role_config(folder / "server-1" / "role.toml")
    assert config.listen is not None
    with socket.create_server(("127.0.0.1", int(config.listen.rpartition(":")[2]))):
        report = look(folder, "server-1")
    assert "taken by another program" in problems(report)["listen"]


def test_an_address_that_is_not_ours(folder: Path) -> None:
    path = folder / "server-1" / "role.toml"
    path.write_text(path.read_text().replace("127.0.0.1", "192.0.2.1"))
    assert "cannot listen" in problems(look(folder, "server-1"))["listen"]


def test_the_other_side_has_another_certificate(folder: Path) -> None:
    stale = folder / "stale.pem"
    stale.write_bytes((folder / "sum" / "certificate.pem").read_bytes())
    stale_key = (folder / "sum" / "tls.key").read_bytes()
    command.rotate("Sum", directory=folder, now=NOW)
    command.rotate("Sum", directory=folder, finish=True)
    (folder / "sum" / "tls.key").write_bytes(stale_key)
    with running(folder, "server-1"), running(folder, "sum", certificate=stale):
        report = look(folder)
    assert "not pinned for it" in problems(report)["reach"]


def test_the_other_side_is_of_a_foreign_consortium(folder: Path, tmp_path: Path) -> None:
    command.create("Trial", tmp_path / "foreign", now=NOW)
    address = load_role_config(folder / "sum" / "role.toml").listen
    command.enrol("Sum", role="aggregator", directory=tmp_path / "foreign", address=address, now=NOW)
    with running(folder, "server-1"), running(tmp_path / "foreign", "sum"):
        report = look(folder)
    assert "does not verify" in problems(report)["reach"]


def test_the_other_side_does_not_know_us(folder: Path, tmp_path: Path) -> None:
    command.create("Trial", tmp_path / "foreign", now=NOW)
    foreign = read_consortium(tmp_path / "foreign" / "consortium.toml").ca_certificate
    with running(folder, "server-1"), running(folder, "sum", authority=foreign):
        report = look(folder)
    assert "refuses our certificate" in problems(report)["reach"]


def test_no_tls_over_there(folder: Path) -> None:
    address = load_role_config(folder / "sum" / "role.toml").listen
    assert address is not None
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))) as plain, ThreadPoolExecutor(1) as pool:

        def answer() -> None:
            line, _ = plain.accept()
            with line:
                line.recv(10)
                line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        pool.submit(answer)
        with running(folder, "server-1"):
            report = look(folder)
    assert "does not speak our TLS" in problems(report)["reach"]


def test_open_and_missing_keys(folder: Path) -> None:
    (folder / "hospital-a" / "tls.key").chmod(0o644)
    report = look(folder)
    assert "open to others (mode 0644)" in problems(report)["keys"]
    (folder / "hospital-a" / "identity.key").unlink()
    assert "No such file" in problems(look(folder))["keys"]


@pytest.mark.parametrize(
    ("days", "check", "status", "what"),
    [
        (80, "certificate", "warning", "expires in 10.0 days"),
        (91, "certificate", "problem", "expired on"),
        (-1, "clock", "problem", "before the consortium existed"),
    ],
)
def test_expired_certificates_and_wrong_clocks(folder: Path, days: int, check: str, status: str, what: str) -> None:
    report = look(folder, "sum", now=NOW + timedelta(days=days))
    assert what in problems(report, status)[check]
    assert report["ok"] == (status == "warning")


def test_a_clock_that_went_back_or_runs_free(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = NOW.timestamp() + 3600
    os.utime(folder / "sum" / "certificate.pem", (ahead, ahead))
    assert "went back" in problems(look(folder, "sum"), "warning")["clock"]
    os.utime(folder / "sum" / "certificate.pem")
    monkeypatch.setattr(room, "_unsynchronised", lambda: True)
    assert "not synchronised" in problems(look(folder, "sum"), "warning")["clock"]


def test_files_that_do_not_fit(folder: Path) -> None:
    toml = folder / "consortium.toml"
    whole = toml.read_text()
    toml.write_text("nonsense")
    assert "not TOML" in problems(look(folder, "sum"))["consortium"]
    toml.write_text(whole.replace('name = "Sum"', 'name = "Another"'))
    assert "not in consortium" in problems(look(folder, "sum"))["certificate"]
    toml.write_text(whole)
    (folder / "sum" / "certificate.pem").write_bytes((folder / "server-1" / "certificate.pem").read_bytes())
    assert "another party" in problems(look(folder, "sum"))["certificate"]
    (folder / "sum" / "role.toml").write_text("[role]\n")
    report = look(folder, "sum")
    assert "lacks role" in problems(report)["config"]
    assert report["party"] is None


def test_data_that_cannot_be_read(folder: Path) -> None:
    path = folder / "hospital-a" / "a.csv"
    path.write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in problems(look(folder))["data"]
    path.unlink()
    assert "does not exist" in problems(look(folder))["data"]


def test_state(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = folder / "sum" / "state"
    state.mkdir(mode=0o755)
    report = look(folder, "sum")
    assert report["ok"]
    assert "open to other users" in problems(report, "warning")["state"]
    state.chmod(0o700)
    usage = type("Usage", (), {"free": 1 << 20})
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _path: usage)
    assert "0.0 GiB free" in problems(look(folder, "sum"))["state"]
    usage.free = 1 << 30  # type: ignore[attr-defined]
    assert "1.0 GiB free" in problems(look(folder, "sum"), "warning")["state"]
    monkeypatch.undo()
    state.rmdir()
    state.write_text("a file")
    assert "not a folder" in problems(look(folder, "sum"))["state"]


def test_nothing_is_changed_and_no_key_is_told(folder: Path) -> None:
    def everything() -> dict[Path, bytes]:
        return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    before = everything()
    report = look(folder)
    assert everything() == before
    text = json.dumps(report) + describe(report)
    for key in folder.rglob("*.key"):
        assert key.read_text().splitlines()[1] not in text


def test_the_kernel_is_asked_without_harm() -> None:
    assert room._unsynchronised() in (True, False)
