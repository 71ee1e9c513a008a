"""States on the wire, groups, and what is refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.algorithms.program import Program, Public, pack_state, unpack_state
from tallystick.core.errors import RemoteProtocolError, StudyError
from tallystick.privacy.grid import Group
from tallystick.protocol.secure_sum.messages import model_digest


class Pair(NamedTuple):
    weights: np.ndarray
    bias: float


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and np.shape(a) == np.shape(b) and np.asarray(a).tobytes() == np.asarray(b).tobytes()


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(finite, min_size=1, max_size=6), finite)
@settings(deadline=None, max_examples=60)
def test_a_state_survives_the_wire_to_the_bit(values: list[float], bias: float) -> None:
    for state in (np.array(values), bias, (np.array(values), bias), Pair(np.array([values, values]), bias)):
        back = unpack_state(pack_state(state), state)
        assert type(back) is type(state)
        parts = zip(back, state) if isinstance(state, tuple) else [(back, state)]
        assert all(same(a, b) for a, b in parts)


def test_packed_bytes_are_little_endian_in_order() -> None:
    state = Pair(np.array([[1.0, 2.0], [3.0, 4.0]]).T, -1.0)  # not C-contiguous: rows are read in C order
    assert pack_state(state) == np.array([1.0, 3.0, 2.0, 4.0, -1.0], dtype="<f8").tobytes()


@pytest.mark.parametrize("raw", [b"", b"\0" * 7, b"\0" * 16, b"\0" * 25, b"\0" * 32])
def test_a_model_of_the_wrong_length_is_refused(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="bytes"):
        unpack_state(raw, Pair(np.zeros(2), 0.0))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_model_with_nan_or_infinity_is_refused(bad: float) -> None:
    with pytest.raises(RemoteProtocolError, match="NaN or infinity"):
        unpack_state(np.array([0.0, bad, 0.0]).tobytes(), Pair(np.zeros(2), 0.0))


def test_an_unpacked_state_is_the_clients_own() -> None:
    raw = bytearray(pack_state(np.arange(3.0)))
    state = unpack_state(bytes(raw), np.zeros(3))
    state += 1
    assert raw == pack_state(np.arange(3.0))


def test_a_state_holds_numbers_only() -> None:
    with pytest.raises(StudyError, match="holds a str"):
        pack_state(("weights", 1.0))


def test_the_model_hash_binds_study_round_and_state() -> None:
    one = model_digest(b"s" * 32, 1, b"model")
    others = {
        model_digest(b"t" * 32, 1, b"model"),
        model_digest(b"s" * 32, 2, b"model"),
        model_digest(b"s" * 32, 1, b"m"),
    }
    assert len({one} | others) == 4
    assert one == model_digest(b"s" * 32, 1, b"model")


def test_a_program_without_its_functions_says_which() -> None:
    class Empty(Program):
        pass

    for call in (
        lambda: Empty().init(Public(features=())),
        lambda: Empty().map_in_client(np.zeros(1), None),
        lambda: Empty().reduce_in_aggregator(np.zeros(1), None),
        lambda: Empty().groups_for(3),
    ):
        with pytest.raises(StudyError, match="Empty") as raised:
            call()
        assert raised.value.remedy


def test_groups_follow_bound_or_are_declared() -> None:
    program = Program()
    program.bound = 2.5
    assert program.groups_for(3) == (Group(name="all", size=3, bound=2.5),)
    program.groups = [Group(name="a", size=1, bound=1.0, share=0.5), Group(name="b", size=2, bound=2.0, share=0.5)]
    assert program.groups_for(3) == tuple(program.groups)
    assert program.query("state") == "state"
    assert program.finished("state") is False


def test_features_are_found_by_name() -> None:
    public = Public(features=("age", "sex=F"))
    assert public.index("sex=F") == 1
    with pytest.raises(StudyError, match="no feature 'sex'") as raised:
        public.index("sex")
    assert "age, sex=F" in str(raised.value.remedy)
