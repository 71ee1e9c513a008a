"""The wheel: the package and nothing else, the same bytes twice, and a command that works where the sources are not.

It is built by the locked tools without the network, installed into an empty environment outside the repository, and
finds its dependencies (not itself) in the environment these tests run in.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path, tmp_path: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources
    assert {name.partition("/")[0] for name in names} == {"tallystick", "tallystick-0.1.0.dist-info"}
    assert build(tmp_path).read_bytes() == wheel.read_bytes()


def test_the_command_works_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "empty"
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--no-input", "install"]
    subprocess.run([*pip, "--quiet", "--no-index", "--no-deps", str(wheel)], check=True, cwd=tmp_path)
    (site,) = home.glob("lib/python*/site-packages")
    dependencies = [path for path in sys.path if Path(path).name == "site-packages"]
    (site / "dependencies.pth").write_text("\n".join(dependencies))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run(str(python), "-c", "import tallystick; print(tallystick.__file__)")
    assert Path(where.strip()).is_relative_to(site)
    assert "simulate" in run(str(home / "bin" / "tallystick"), "--help")
    assert '"$schema"' in run(str(home / "bin" / "tallystick"), "schema")
