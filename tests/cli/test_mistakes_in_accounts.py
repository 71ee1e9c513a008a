"""Everyday mistakes of authorities, operators and stewards: each ends with its exit code, its cause and what to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_runs import Run, clinic

from tallystick.application import kernel_cache
from tallystick.application.kernel_cache import keep_kernels
from tallystick.data.accounts import account_name
from tallystick.data.sources import column_names

Runner = Callable[..., Run]
STRANGER = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another account's place")


@pytest.fixture(autouse=True)
def same_cache() -> Iterator[None]:
    """A test that stands for another account leaves this process's cache of compiled code where it was."""
    before = os.environ.get("NUMBA_CACHE_DIR")
    yield
    os.environ.pop("NUMBA_CACHE_DIR", None)
    if before is not None:
        os.environ["NUMBA_CACHE_DIR"] = before


@pytest.fixture
def folder(run: Runner, tmp_path: Path, data: Path) -> Path:
    """A consortium with a client whose records are registered with a budget of epsilon 1."""
    made = tmp_path / "con"
    assert run("consortium", "create", "Trial", "--out", made).code == 0
    server = ("server-1", "--role", "server", "--address", "127.0.0.1:7001")
    assert run("consortium", "enrol", *server, "--in", made).code == 0
    assert run("consortium", "enrol", "clinic", "--role", "client", "--in", made, "--data", data).code == 0
    config = made / "clinic" / "role.toml"
    words = ("--source", data, "--budget-epsilon", 1, "--config", config)
    assert run("data", "add", "patients", *words).code == 0
    return made


@pytest.fixture
def asked(run: Runner, tmp_path: Path) -> dict[str, str]:
    """A request that has come to the authority."""
    words = ("hospital", "--role", "client", "--out", tmp_path / "party", "--format", "json")
    return dict(run("consortium", "request", *words).json)


def refused(done: Run, code: int, rule: str, *words: str) -> None:
    """It failed as it should, and a person can tell why and what to do."""
    assert done.code == code, done
    error = done.error
    assert error["rule"] == rule
    assert error["cause"]
    assert error["remedy"]
    said = f"{error['cause']} {error['remedy']}"
    assert [word for word in words if word not in said] == [], said
    assert "Traceback" not in done.err
    assert "bug" not in done.err


@contextmanager
def account(uid: int, *paths: Path) -> Iterator[None]:
    """This process as another account, to whom the folders above these paths are open."""
    for path in paths:
        for place in path.parents:
            if place.stat().st_mode & 0o005 != 0o005 and place.stat().st_uid == 0 and "pytest" in str(place):
                place.chmod(place.stat().st_mode | 0o055)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def give(folder: Path, uid: int) -> None:
    for place in (folder, *folder.rglob("*")):
        os.chown(place, uid, uid)


# -- the authority -----------------------------------------------------------------------------------------------------


def test_approving_without_the_fingerprint(run: Runner, folder: Path, asked: dict[str, str]) -> None:
    done = run("consortium", "approve", asked["request"], "--in", folder, "--format", "json")
    refused(done, 2, "fingerprint-needed", "nobody has vouched", "by telephone", "--fingerprint", "--unchecked")
    assert asked["fingerprint"] not in done.out + done.err  # or it would be copied instead of heard
    assert "hospital" not in run("consortium", "show", folder).out
    assert run("consortium", "approve", asked["request"], "--in", folder, "--unchecked").code == 0


@pytest.mark.parametrize(
    ("given", "code", "rule", "word"),
    [
        ("sha256:" + "0" * 64, 6, "wrong-fingerprint", "changed on its way"),
        ("sha256:1234", 2, "fingerprint-needed", "4 characters"),
        ("over the telephone", 2, "fingerprint-needed", "read out again"),
        ("", 2, "fingerprint-needed", "64 digits"),
    ],
)
def test_a_wrong_fingerprint(
    run: Runner, folder: Path, asked: dict[str, str], given: str, code: int, rule: str, word: str
) -> None:
    words = ("--in", folder, "--fingerprint", given, "--format", "json")
    refused(run("consortium", "approve", asked["request"], *words), code, rule, word)


def test_a_fingerprint_may_be_typed_as_it_was_heard(run: Runner, folder: Path, asked: dict[str, str]) -> None:
    digits = asked["fingerprint"].removeprefix("sha256:").upper()
    spaced = " ".join(digits[i : i + 8] for i in range(0, 64, 8))
    assert run("consortium", "approve", asked["request"], "--in", folder, "--fingerprint", spaced).code == 0


def test_fingerprint_and_unchecked_at_once(run: Runner, folder: Path, asked: dict[str, str]) -> None:
    words = ("--in", folder, "--fingerprint", asked["fingerprint"], "--unchecked", "--format", "json")
    refused(run("consortium", "approve", asked["request"], *words), 2, "fingerprint-needed", "at once")


def test_approving_twice(run: Runner, folder: Path, asked: dict[str, str], tmp_path: Path) -> None:
    approve = ("consortium", "approve", asked["request"], "--in", folder, "--fingerprint", asked["fingerprint"])
    assert run(*approve).code == 0
    before = (folder / "consortium.toml").read_bytes()
    refused(run(*approve, "--format", "json"), 2, "consortium", "approved already", "hospital.pem")
    refused(run(*approve, "--rotate", "--format", "json"), 2, "consortium", "approved already", "consortium rotate")
    # A renewal that nobody called one: it is another request, and is taken only when that is said.
    issued = folder / "issued" / "hospital.pem"
    party = ("--in", tmp_path / "party")
    assert run("consortium", "install", issued, "--consortium", folder / "consortium.toml", *party).code == 0
    renewal = run("consortium", "rotate", *party, "--format", "json").json
    words = ("consortium", "approve", renewal["request"], "--in", folder, "--fingerprint", renewal["fingerprint"])
    refused(run(*words, "--format", "json"), 2, "consortium", "another request", "--rotate")
    assert (folder / "consortium.toml").read_bytes() == before
    assert run(*words, "--rotate").code == 0


def test_rotating_somebody_who_is_not_in(run: Runner, folder: Path, asked: dict[str, str]) -> None:
    words = ("--in", folder, "--fingerprint", asked["fingerprint"], "--rotate", "--format", "json")
    refused(run("consortium", "approve", asked["request"], *words), 2, "consortium", "nothing to renew")


# -- accounts ----------------------------------------------------------------------------------------------------------


@needs_root
def test_another_accounts_folder(run: Runner, folder: Path) -> None:
    config = folder / "clinic" / "role.toml"
    commands = (("budget", "show"), ("ledger", "verify"), ("data", "list"))
    for words in commands:
        assert run(*words, "--config", config).code == 0
    give(folder, STRANGER + 1)
    for words in commands:
        with account(STRANGER, config):
            done = run(*words, "--config", config, "--format", "json")
        assert done.code == 2
        assert f"Run it as {STRANGER + 1}: sudo -u #{STRANGER + 1} tallystick" in str(done.error["remedy"])


@needs_root
def test_root_instead_of_the_roles_account(run: Runner, folder: Path) -> None:
    """What root made would be closed to the role: it is refused before anything is written."""
    give(folder / "clinic", STRANGER)
    before = {path: path.stat().st_uid for path in folder.rglob("*")}
    done = run("budget", "show", "--config", folder / "clinic" / "role.toml", "--format", "json")
    refused(done, 2, "wrong-account", f"belongs to the account {STRANGER}", "runs as root", f"sudo -u #{STRANGER}")
    assert {path: path.stat().st_uid for path in folder.rglob("*")} == before
    found = run("doctor", "--config", folder / "clinic" / "role.toml", "--format", "json").json["findings"]
    assert [f for f in found if f["check"] == "keys" and f["status"] == "problem" and "sudo -u" in f["remedy"]]


@needs_root
def test_a_state_folder_that_root_has_made(run: Runner, folder: Path) -> None:
    config = folder / "clinic" / "role.toml"
    commands = (("budget", "show"), ("study", "wait", "--timeout", 0), ("ledger", "verify"))
    for words in commands:  # what they import is imported: the interpreter itself may be closed to strangers
        run(*words, "--config", config)
    give(folder / "clinic", STRANGER)
    give(folder / "clinic" / "state", 0)
    with account(STRANGER, config):
        done = run("budget", "show", "--config", config, "--format", "json")
    refused(done, 4, "storage-read-only", "belongs to root", f"chown -R {STRANGER} {folder / 'clinic' / 'state'}")
    (folder / "clinic" / "state").chmod(0)
    with account(STRANGER):
        for words in commands:
            done = run(*words, "--config", config, "--format", "json")
            assert done.code in (2, 4), done
            assert f"chown -R {STRANGER}" in str(done.error["remedy"])


@needs_root
def test_records_that_the_account_may_not_read(data: Path) -> None:
    assert column_names(data)
    data.chmod(0o600)
    with account(STRANGER, data), pytest.raises(Exception, match="may not be read") as caught:
        column_names(data)
    assert f"setfacl -m u:{STRANGER}:r {data}" in str(caught.value)


def test_an_account_without_a_name_has_a_number() -> None:
    assert account_name(STRANGER) == str(STRANGER)


# -- no home, no cache -------------------------------------------------------------------------------------------------


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An account that can write neither the package nor its home, which is not there."""
    monkeypatch.setattr(kernel_cache, "_package_is_writable", lambda: False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/dev/null/unwritable")
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.chdir(tmp_path)
    return monkeypatch


def test_compiled_code_goes_into_the_state_folder(homeless: pytest.MonkeyPatch, folder: Path) -> None:
    os.environ["NUMBA_CACHE_DIR"] = "/dev/null/unwritable"  # the commands that made the folder have found a place
    keep_kernels(folder / "clinic" / "role.toml")
    kept = folder / "clinic" / "state" / "kernels"
    assert os.environ["NUMBA_CACHE_DIR"] == str(kept)
    assert kept.stat().st_mode & 0o777 == 0o700
    kept.chmod(0o777)  # what is kept there is run: not from a folder that everybody writes
    os.environ["NUMBA_CACHE_DIR"] = "/dev/null/unwritable"
    keep_kernels(folder / "clinic" / "role.toml")
    assert os.environ["NUMBA_CACHE_DIR"] != str(kept)


@pytest.mark.parametrize("setting", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"])
def test_compiled_code_is_not_taken_from_a_folder_that_others_write(
    homeless: pytest.MonkeyPatch, tmp_path: Path, setting: str
) -> None:
    """What is kept there is run: /tmp/numba, or a home in /tmp, is whoever's was first."""
    inside = {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": "numba", "HOME": ".cache/numba"}[setting]
    shared = tmp_path / "tmp"
    (shared / inside).mkdir(parents=True)
    (shared / inside).chmod(0o777)
    homeless.setenv(setting, str(shared))
    keep_kernels()
    assert not Path(os.environ["NUMBA_CACHE_DIR"]).is_relative_to(shared)
    (shared / inside).chmod(0o700)
    homeless.setenv("NUMBA_CACHE_DIR", str(shared) if setting == "NUMBA_CACHE_DIR" else "/dev/null/unwritable")
    keep_kernels()
    assert os.environ.get("NUMBA_CACHE_DIR", str(shared)) == str(shared)


def test_a_role_file_of_a_stranger_names_no_place_for_compiled_code(
    homeless: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever owns the folder above could put another in its place: a state folder is there already, and one's own."""
    (tmp_path / "role.toml").write_text('[role]\nstate = "made/for/you"\n')
    keep_kernels()
    assert not (tmp_path / "made").exists()
    assert not Path(os.environ["NUMBA_CACHE_DIR"]).is_relative_to(tmp_path / "made")


def test_commands_without_any_home_work(homeless: pytest.MonkeyPatch, run: Runner, folder: Path, data: Path) -> None:
    for words in (("consortium", "show", folder), ("data", "list", "--config", folder / "clinic" / "role.toml")):
        assert run(*words).code == 0
    assert Path(os.environ["NUMBA_CACHE_DIR"]).is_dir()


def test_no_place_to_write_at_all(homeless: pytest.MonkeyPatch, run: Runner) -> None:
    def nowhere(**_options: object) -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    homeless.setattr(kernel_cache.tempfile, "mkdtemp", nowhere)
    refused(run("schema", "--format", "json"), 2, "no-place-to-write", "TMPDIR", "NUMBA_CACHE_DIR")


# -- budgets -----------------------------------------------------------------------------------------------------------


def test_a_budget_of_nothing(run: Runner, folder: Path, tmp_path: Path) -> None:
    config = ("--config", folder / "clinic" / "role.toml", "--format", "json")
    add = ("data", "add", "more", "--source", clinic(tmp_path, "more", seed=2), "--budget-epsilon", 0)
    refused(run(*add, *config), 2, "budget-stated", "is no budget", "1 is a common choice")
    refused(run("budget", "grant", "patients", "--epsilon", 0, *config), 2, "budget-stated", "is no budget")
    refused(run("budget", "show", "--epsilon", 0, *config), 2, "usage", "no study has epsilon = 0")


def test_a_budget_for_a_data_set_that_is_not_there(run: Runner, folder: Path) -> None:
    done = run("budget", "show", "patient", "--config", folder / "clinic" / "role.toml", "--format", "json")
    refused(done, 2, "unknown-data-set", "'patient'", "Known: patients")


def test_show_says_what_a_budget_pays_for(run: Runner, folder: Path) -> None:
    config = ("--config", folder / "clinic" / "role.toml")
    shown = run("budget", "show", *config).out
    for words in ("Further studies that still fit:", "of epsilon = 0.5", "at most 73% sure", "How to choose a budget"):
        assert words in shown
    facts = run("budget", "show", "--epsilon", 0.25, *config, "--format", "json").json["budgets"][0]
    (fitting,) = facts["still_fit"]
    assert fitting["epsilon"] == 0.25
    assert f"{fitting['studies']} of epsilon = 0.25" in run("budget", "show", "--epsilon", 0.25, *config).out


# -- a steward ---------------------------------------------------------------------------------------------------------


def test_waiting_with_the_wrong_role_file(run: Runner, folder: Path) -> None:
    done = run("study", "wait", "--config", folder / "server-1" / "role.toml", "--format", "json")
    refused(done, 2, "usage", "server server-1", "role file of a client")


def test_waiting_in_vain(run: Runner, folder: Path) -> None:
    config = ("--config", folder / "clinic" / "role.toml", "--format", "json")
    refused(run("study", "wait", "--timeout", 0, *config), 4, "nothing-waits", "within 0 s", "study list")
    refused(run("study", "wait", "--timeout", -1, *config), 2, "usage", "--timeout -1")


def test_a_notice_that_cannot_be_sent(run: Runner, folder: Path) -> None:
    config = folder / "clinic" / "role.toml"
    nobody = run("doctor", "--config", config, "--test-notice", "--format", "json")
    assert "nobody is told" in str([f for f in nobody.json["findings"] if f["check"] == "notify"])
    text = config.read_text()
    config.write_text(f'{text}\n[notify]\ncommand = ["/nowhere/tell"]\n')
    found = run("doctor", "--config", config, "--test-notice", "--format", "json").json["findings"]
    problems = [f for f in found if f["check"] == "notify"]
    assert [f["status"] for f in problems] == ["problem", "problem"]
    assert "there is no command /nowhere/tell" in problems[0]["what"]
    assert "does not start" in problems[1]["what"]
    config.write_text(f"{text}\n[notify]\n")
    refused(run("budget", "show", "--config", config, "--format", "json"), 2, "config", "tells nobody", "[notify]")


# -- epsilon -----------------------------------------------------------------------------------------------------------


def test_an_epsilon_that_protects_nobody(run: Runner, study: Path, data: Path) -> None:
    for words in (("simulate", study, "--data", data, "--clients", 3, "--seed", 1), ("plan", study, "--records", 120)):
        weak = run(*words, "--set", "privacy.epsilon=10.5", "--format", "json")
        assert weak.code == 0
        assert weak.json["privacy"]["epsilon"] == 10.5
        assert "warning: epsilon = 10.5 allows odds of 36,316 to 1" in weak.err
        assert "below 10" in weak.err
        assert "warning: epsilon" not in run(*words, "--format", "json").err  # 10 itself is not above it
