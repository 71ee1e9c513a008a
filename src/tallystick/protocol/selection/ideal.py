"""The function that the computing parties evaluate together, in plain integers: what they must agree with, bit for bit.

It is also the mechanism itself: its law, for uniform words, is what ``exponential_mechanism`` charges for; for words of
discrete Laplace noise, what ``sparse_vector`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from tallystick.core.errors import LocalProtocolError
from tallystick.protocol.selection.grouped import GroupedQuestion, joined, parts
from tallystick.protocol.selection.question import Question
from tallystick.protocol.selection.threshold import ThresholdQuestion, ideal_above


def ideal(
    question: Question | GroupedQuestion | ThresholdQuestion, totals: Sequence[int], words: Sequence[bytes]
) -> int:
    """The cell drawn from these exact totals by the parties' words, one of each, XORed; of a comparison, the bits of
    the counts that reach the threshold with everybody's noise."""
    if isinstance(question, ThresholdQuestion):
        return ideal_above(question, list(totals), list(words))
    if isinstance(question, GroupedQuestion):
        groups = question.groups
        of_group = zip(parts(list(totals), groups), zip(*(parts(word, groups) for word in words)), strict=True)
        return joined([ideal(question.each, own, own_words) for own, own_words in of_group])
    return draw(question, weights(question, totals), joint_word(question, words))


def joint_word(question: Question, words: Sequence[bytes]) -> int:
    """R: uniform as soon as one party's word is."""
    joint = 0
    for word in words:
        if len(word) != question.word_bytes:
            raise LocalProtocolError(f"a random word has {question.word_bytes} bytes")
        joint ^= int.from_bytes(word, "little")
    return joint


def weights(question: Question, totals: Sequence[int]) -> list[int]:
    """Every cell's weight."""
    table = question.table
    return [table.weights[min(d, table.clamp)] for d in distances(question, totals)]


def distances(question: Question, totals: Sequence[int]) -> list[int]:
    """Every cell's distance, not yet clamped: the maximum that ``Question`` names, for counts below zero as well."""
    if len(totals) != question.values:
        raise LocalProtocolError(f"{len(totals)} totals where {question.values} belong")
    shift = question.shift
    if question.kind == "scores":
        scores = [value >> shift for value in totals]
        best = max(scores)
        return [best - score for score in scores]
    a, b = question.numerator, question.denominator
    *ranks, n = accumulate(totals)
    edges = [(b * rank - a * n) >> shift for rank in ranks]
    return [max(0, low, -high) for low, high in pairwise(edges)]


def draw(question: Question, weights: Sequence[int], word: int) -> int:
    """The cell in whose stretch of [0, W) floor(R · W / 2^L) lies."""
    sums = list(accumulate(weights))
    r = (word * sums[-1]) >> question.draw_bits
    return next(cell for cell, end in enumerate(sums) if r < end)
