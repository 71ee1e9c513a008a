"""docs/deploy.md is executed: every block marked ``<!-- tested at: MACHINE -->``, in order, each machine a folder.

``scp`` is a copy into another machine's folder; ``spoken`` is the telephone: the fingerprint that the party was shown.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- tested at: ([a-z0-9-]+) -->\n```sh\n(.*?)```", GUIDE, re.DOTALL)
UNITS = sorted((ROOT / "examples" / "systemd").glob("*.service"))

SHELL = """
set -eu
scp() { local to="${@: -1}"; cp -- "${@:1:$#-1}" "$MACHINES/${to%%.*}/"; }
spoken() {
  local machine; case "$1" in server-1) machine=sum1;; server-2) machine=sum2;; aggregator) machine=agg;;
    *) machine="$1";; esac
  grep -o 'sha256:[0-9a-f]*' "$MACHINES/$machine/said" | tail -n 1
}
"""


def run_block(machines: Path, machine: str, block: str) -> str:
    folder = machines / machine
    folder.mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", SHELL + block],
        cwd=folder,
        env={"PATH": path, "MACHINES": str(machines), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"at {machine}:\n{block}\n{done.stdout}{done.stderr}"
    with (folder / "said").open("a", encoding="utf-8") as said:
        said.write(done.stdout)
    return done.stdout


def test_the_guide_works_as_it_stands(tmp_path: Path) -> None:
    assert len(BLOCKS) > 12
    for name in {machine for machine, _ in BLOCKS} | {"authority"}:
        (tmp_path / name).mkdir()
    said = [run_block(tmp_path, machine, block) for machine, block in BLOCKS]
    assert "version" in said[0]
    authority, hospital = tmp_path / "authority", tmp_path / "hospital-a" / "party"
    # Private keys are where they were made, readable by their owner alone, and nowhere else.
    keys = {p.relative_to(tmp_path) for p in tmp_path.rglob("*.key")}
    machines = ("sum1", "sum2", "agg", "hospital-a", "analyst")
    made = {Path(m, "party", k) for m in machines for k in ("tls.key", "identity.key")}
    assert keys == made | {Path("authority/consortium/ca.key")}
    assert {(tmp_path / k).stat().st_mode & 0o777 for k in keys} == {0o600}
    secrets = [(tmp_path / k).read_text().splitlines()[1] for k in keys]
    for path in (*authority.glob("*.request.toml"), authority / "consortium" / "consortium.toml"):
        assert not [s for s in secrets if s in path.read_text()]
    assert hospital.joinpath("certificate.pem").exists()
    final = (authority / "consortium" / "consortium.toml").read_text()
    assert len(re.findall(r"sha256:", final)) == 5  # after --finish, one certificate a party


def test_the_guide_tells_the_fingerprint_apart(tmp_path: Path) -> None:
    """The same walk, but the line is tapped: what is heard is not what was sent."""
    create, request = BLOCKS[0][1], next(b for m, b in BLOCKS if m == "hospital-a")
    for name in ("authority", "hospital-a"):
        (tmp_path / name).mkdir()
    run_block(tmp_path, "authority", create)
    run_block(tmp_path, "hospital-a", request)
    approve = "tallystick consortium approve hospital-a.request.toml --in consortium --fingerprint sha256:" + "0" * 64
    with pytest.raises(AssertionError, match="changed on its way"):
        run_block(tmp_path, "authority", approve)


@pytest.mark.parametrize("unit", UNITS, ids=lambda p: p.name)
def test_the_units_start_the_role_they_are_named_after(unit: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    role = unit.stem.removeprefix("tallystick-")
    assert f"/tallystick {role} start --config /var/lib/tallystick/party/role.toml --log-format json" in text
    for line in ("LimitCORE=0", "UMask=0077", "NoNewPrivileges=yes", "ProtectSystem=strict", "Restart=always"):
        assert line in text.splitlines()


def test_the_guide_names_every_unit_role_and_metric() -> None:
    assert {u.stem.removeprefix("tallystick-") for u in UNITS} == {"server", "aggregator", "client"}
    monitoring = (ROOT / "src" / "tallystick" / "roles" / "operations" / "monitoring.py").read_text(encoding="utf-8")
    for name in re.findall(r"tallystick_([a-z_]+)", GUIDE):
        assert f'"{name.removesuffix("_total")}"' in monitoring, name
    for link in re.findall(r"\]\(([^)#:]+)\)", GUIDE):
        assert (ROOT / "docs" / link).exists(), link
