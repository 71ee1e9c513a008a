"""Role configs: what is read, and that nothing misspelt, misplaced or impossible is passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.core.errors import StudyError
from tallystick.roles.identity.role_config import Policy, load_role_config, parse_role_config

HEAD = """
[role]
name = "{name}"
role = "{role}"
certificate = "certificate.pem"
key = "/etc/tallystick/tls.key"
identity = "identity.key"
state = "state"
"""
CLIENT = HEAD.format(name="Hospital A", role="client") + '[data]\nsource = "records.parquet"\n'
SERVER = HEAD.format(name="Server 1", role="server") + 'listen = "0.0.0.0:7101"\n'
AGGREGATOR = HEAD.format(name="Sum", role="aggregator") + 'listen = "[::]:7100"\n'
ANALYST = HEAD.format(name="Lab", role="analyst")
PATH = Path("/srv/tallystick/role.toml")


def test_a_client() -> None:
    config = parse_role_config(CLIENT, PATH)
    assert (config.name, config.role) == ("Hospital A", "client")
    assert config.consortium == Path("/srv/tallystick/consortium.toml")
    assert config.key == Path("/etc/tallystick/tls.key")
    assert config.state == Path("/srv/tallystick/state")
    assert config.data == Path("/srv/tallystick/records.parquet")
    assert config.policy == Policy() == Policy(programs=None, max_epsilon=1.0, allow_not_private=False, min_clients=3)
    assert config.listen is None
    assert config.metrics is None


def test_a_clients_policy() -> None:
    text = (
        CLIENT
        + '[policy]\nprograms = ["kmeans", "sha256:ab"]\nmax_epsilon = 2\nallow_not_private = true\nmin_clients = 5'
    )
    policy = parse_role_config(text, PATH).policy
    assert policy == Policy(programs=("kmeans", "sha256:ab"), max_epsilon=2.0, allow_not_private=True, min_clients=5)
    assert policy is not None
    assert isinstance(policy.max_epsilon, float)


def test_programs_left_out_and_an_empty_list_are_different_things() -> None:
    """Left out: every built-in program. Empty: nothing. An empty list used to be read as no list at all."""
    assert parse_role_config(CLIENT, PATH).policy.programs is None  # type: ignore[union-attr]
    assert parse_role_config(CLIENT + "[policy]\nprograms = []", PATH).policy.programs == ()  # type: ignore[union-attr]


def test_the_other_roles() -> None:
    server = parse_role_config(SERVER + 'workers = 4\n[metrics]\nlisten = "127.0.0.1:9101"\n', PATH)
    assert (server.listen, server.workers, server.metrics) == ("0.0.0.0:7101", 4, "127.0.0.1:9101")
    assert server.data is None
    assert server.policy is None
    assert parse_role_config(AGGREGATOR, PATH).listen == "[::]:7100"
    assert parse_role_config(ANALYST, PATH).listen is None


REFUSED = {
    "not TOML": ("[role", "not TOML"),
    "no role": ("", "lacks role"),
    "role is no table": ("role = 3", "not a table"),
    "unknown role": (ANALYST.replace('"analyst"', '"boss"'), "unknown"),
    "bad name": (ANALYST.replace('"Lab"', '"../lab"'), "not allowed"),
    "misspelt key": (SERVER + "wokers = 4", "has no 'wokers'.*Did you mean workers"),
    "misspelt policy": (CLIENT + "[policy]\nmax_epsilom = 1.0", "Did you mean max_epsilon"),
    "unknown section": (ANALYST + "[debug]\nx = 1", r"has no \[debug\]"),
    "seed": (SERVER + "seed = 1", "has no 'seed'"),
    "noise": (SERVER + "[noise]\nscale = 0", r"has no \[noise\]"),
    "a client that listens": (CLIENT.replace("[data]", 'listen = "a:1"\n[data]'), "has no 'listen'"),
    "a client with workers": (CLIENT.replace("[data]", "workers = 2\n[data]"), "has no 'workers'"),
    "a server with data": (SERVER + '[data]\nsource = "x.csv"', r"has no \[data\]"),
    "an aggregator with a policy": (AGGREGATOR + "[policy]", r"has no \[policy\]"),
    "no listen": (SERVER.replace('listen = "0.0.0.0:7101"', ""), "lacks listen"),
    "no data": (CLIENT.replace('[data]\nsource = "records.parquet"', ""), "lacks data"),
    "no source": (CLIENT.replace('source = "records.parquet"', ""), "lacks source"),
    "no key": (ANALYST.replace('key = "/etc/tallystick/tls.key"', ""), "lacks key"),
    "bad listen": (SERVER.replace(":7101", ""), "not an address"),
    "bad metrics": (SERVER + '[metrics]\nlisten = "9101"', "not an address"),
    "no workers": (SERVER + "workers = 0", "not possible"),
    "too many workers": (SERVER + "workers = 1000", "not possible"),
    "workers as text": (SERVER + 'workers = "2"', "not a whole number"),
    "workers as truth": (SERVER + "workers = true", "not a whole number"),
    "an empty path": (ANALYST.replace('"state"', '""'), "is empty"),
    "control characters": (ANALYST.replace('"state"', '"a\\nb"'), "control characters"),
    "epsilon zero": (CLIENT + "[policy]\nmax_epsilon = 0", "positive"),
    "epsilon negative": (CLIENT + "[policy]\nmax_epsilon = -1.0", "positive"),
    "epsilon infinite": (CLIENT + "[policy]\nmax_epsilon = inf", "positive"),
    "epsilon nan": (CLIENT + "[policy]\nmax_epsilon = nan", "positive"),
    "epsilon true": (CLIENT + "[policy]\nmax_epsilon = true", "not a number"),
    "one client": (CLIENT + "[policy]\nmin_clients = 1", "not possible"),
    "not_private as text": (CLIENT + '[policy]\nallow_not_private = "false"', "true or false"),
    "programs as text": (CLIENT + '[policy]\nprograms = "kmeans"', "not a list"),
    "programs of numbers": (CLIENT + "[policy]\nprograms = [1]", "list of texts"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused(why: str) -> None:
    text, cause = REFUSED[why]
    with pytest.raises(StudyError) as refusal:
        parse_role_config(text, PATH)
    assert refusal.value.remedy
    import re

    assert re.search(cause, str(refusal.value)), str(refusal.value)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "role.toml"
    with pytest.raises(StudyError, match="cannot read"):
        load_role_config(path)
    path.write_bytes(b"\xff")
    with pytest.raises(StudyError, match="UTF-8"):
        load_role_config(path)
    path.write_text(SERVER)
    assert load_role_config(path, role="server").state == tmp_path / "state"
    with pytest.raises(StudyError, match="config of the role 'server', not of 'client'"):
        load_role_config(path, role="client")
