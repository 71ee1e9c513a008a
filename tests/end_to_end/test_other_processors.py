"""A seeded result has the same bits on another processor, whose exp and matrix products round differently."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from numpy._core import _multiarray_umath as numpy_core
from tests.end_to_end.test_unchanged_results import RECORDED

NAMES = ("itemsets", "ridge", "kmeans", "logistic")
SCRIPT = f"""
import json
from tests.end_to_end.test_unchanged_results import _result
print(json.dumps({{name: _result(name)["states"] for name in {NAMES}}}))
"""


def test_seeded_results_do_not_depend_on_the_processor() -> None:
    wide = [name for name in numpy_core.__cpu_dispatch__ if numpy_core.__cpu_features__.get(name)]
    if not wide:
        pytest.skip("this processor has no vector instructions that NumPy could do without")
    elsewhere = os.environ | {"NPY_DISABLE_CPU_FEATURES": " ".join(wide), "OPENBLAS_CORETYPE": "Nehalem"}
    root = pathlib.Path(__file__).parents[2]
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=root, env=elsewhere, capture_output=True, text=True, check=True
    )
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))["results"]
    assert json.loads(out.stdout) == {name: recorded[name]["states"] for name in NAMES}
