"""The labels of the figures fit beside their axes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "docs" / "results"
WIDTH, HEIGHT, LETTER = 300, 210, 6.2
"""Of a panel in svg_plot, and of a letter of its font (11 px sans-serif, on average; measured 5.4 to 6.1)."""


@pytest.mark.parametrize("figure", ["2a", "2b", "2c", "3"])
def test_labels_fit(figure: str) -> None:
    text = (RESULTS / f"pem-figure-{figure}.svg").read_text(encoding="utf-8")
    upright = re.findall(r"rotate\(-90[^>]*><text[^>]*>([^<]*)<", text)
    titles = re.findall(r'y="22.0" text-anchor="middle">([^<]*)<', text)
    assert upright
    assert titles
    assert all(len(words) * LETTER <= HEIGHT for words in upright)
    assert all(len(words) * LETTER <= WIDTH + 20 for words in titles)
