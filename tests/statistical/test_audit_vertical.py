"""The ε audit of joint moments: institutions with different columns keep the claim, planted bugs do not.

One run is the one round's total, of whichever record is replaced, under the honest server's exact noise (audit_rounds).
The record's vector is what the institutions' machines make of it on shares. Planted: a norm that an institution does
not enforce, noise for half the Frobenius distance, a mask that serves twice.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import audit_rounds
import numpy as np
import pytest
from audit_bounds import Bound, Outputs, find_bound
from audit_rounds import ALPHA, times, told
from tests.claims import servers_claim

from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.joint_moments import rows as joint_rows
from tallystick.algorithms.joint_moments.regression import design_vertical_ridge
from tallystick.algorithms.program import Public
from tallystick.crypto.field import MODULUS, decode_signed, sum_vectors
from tallystick.crypto.prg import AesStream, derive
from tallystick.engines.joint_map import JointMap, joint_parameters
from tallystick.privacy.gaussian_curve import gaussian_rho
from tallystick.privacy.sum_plan import SumPlan
from tallystick.protocol.instructions import Send
from tallystick.protocol.joint_products import DealerMachine, HolderMachine
from tallystick.protocol.joint_products.messages import DealWanted
from tallystick.protocol.joint_products.parameters import JointParameters
from tallystick.transport.memory_holders import MemoryHolders

EPSILON, DELTA, RUNS = 2.0, 0.03, 20_000
BANK, HOSPITAL = "bank", "hospital"


def planned() -> tuple[Any, SumPlan]:
    public = Public(
        features=("a", "b"),
        records=20,
        target="t",
        target_bounds=(-1.0, 1.0),
        units=(("number", 0.0, 1.0, 0.0),) * 2,
        blocks=(("a", 0, 1, "number", 1), ("b", 1, 2, "number", 1)),
        holders=((BANK, (0,), 3.0), (HOSPITAL, (1,), 3.0)),
        label_holder=BANK,
    )
    budget = PublicBudget(
        mechanism="gaussian",
        rho=float(gaussian_rho(EPSILON, DELTA)),
        epsilon=EPSILON,
        neighbours="replace-one",
        variance_factor=2.0,
    )
    design = design_vertical_ridge({}, public, budget)
    claim = servers_claim(
        epsilon=EPSILON, delta=DELTA, neighbours="replace-one", mechanism="gaussian", rounds=1, records=20
    )
    return design.program, design.plan(claim)


def vector(program: Any, plan: SumPlan, record: tuple[float, float, float]) -> np.ndarray:
    """What a record adds to the round: the institutions' shares, added up."""
    a, b, t = record
    units = {
        BANK: program.rows.units(BANK, np.array([[a]]), np.array([t])),
        HOSPITAL: program.rows.units(HOSPITAL, np.array([[b]]), None),
    }
    parties = MemoryHolders(joint_parameters(program, bytes(32), 1), units, AesStream(derive(bytes(32), b"deal")))
    shares = parties.run()
    maps = [JointMap(program.rows, name, units[name], shares[name]) for name in units]
    return decode_signed(sum_vectors([m.contribute(b"", plan.rounds[0]) for m in maps]))


def audit(*, far: float = 1e3, tamper: Any = None, runs: int = RUNS) -> Bound:
    program, plan = planned()
    corners = [(a, b, t) for a in (-far, 0.0, far) for b in (-far, 0.0, far) for t in (-1.0, 0.0, 1.0)]
    made = {corner: vector(program, plan, corner) for corner in corners}
    pair = max(
        ((x, y) for x in corners for y in corners if x < y), key=lambda p: told(plan, ([made[p[0]]], [made[p[1]]]))
    )
    drawn = plan if tamper is None else tamper(plan)
    bound = audit_rounds.audit(plan, ([made[pair[0]]], [made[pair[1]]]), runs=runs, delta=DELTA, drawn=drawn)
    print(f"{pair} eps >= {bound.epsilon:.3f}")
    return bound


def test_the_claim_is_not_refuted() -> None:
    assert 0.5 < audit().epsilon < EPSILON


@pytest.mark.audit
def test_the_claim_is_not_refuted_by_many_runs() -> None:
    assert audit(runs=400_000).epsilon < EPSILON


def test_noise_for_half_the_frobenius_distance_is_flagged() -> None:
    assert audit(tamper=times(Fraction(1, 4))).epsilon > EPSILON


def test_a_norm_that_is_not_enforced_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A semi-honest institution shortens its rows; one that does not, here by a bug, tells more than is claimed."""

    def unbounded(rows: np.ndarray, bits: int, bound: int) -> np.ndarray:
        return np.rint(np.ldexp(rows, bits))

    monkeypatch.setattr(joint_rows, "rows_on_grid", unbounded)
    assert audit(far=7.9).epsilon > EPSILON


def dealt(parameters: JointParameters, source: AesStream) -> dict[str, Any]:
    """Each institution's mask and shares, as it is told when it asks."""
    dealer = DealerMachine(parameters)
    dealer.deal(source)
    asked = DealWanted(study_hash=parameters.study_hash)
    return {s.to: s.message for name in parameters.holders for s in dealer.receive(name, asked, 0.0)}


@pytest.mark.parametrize(("reused", "flagged"), [(True, True), (False, False)])
def test_a_mask_that_serves_twice_is_flagged(reused: bool, flagged: bool) -> None:
    """The view of the hospital: what the bank opens in two studies, of records that differ in one value or not."""
    program, _ = planned()
    p, runs, outputs = joint_parameters(program, bytes(32), 1), 600, []
    for which in (0.0, 1.0):
        seen = []
        for run in range(runs):
            deals = [
                dealt(p, AesStream(derive(bytes(32), label)))
                for label in (b"%d %d 1" % (which, run), b"%d %d %d" % (which, run, 1 if reused else 2))
            ]
            opened = []
            for deal, value in zip(deals, (0.0, which)):
                bank = HolderMachine(p, BANK)
                bank.receive("dealer", deal[BANK], 0.0)
                sent = bank.open_rows(program.rows.units(BANK, np.array([[value]]), np.array([0.0])))
                rows = next(s.message.rows for s in sent if isinstance(s, Send))
                opened.append(int.from_bytes(rows[8:16], "little"))
            seen.append(float((opened[1] - opened[0]) % MODULUS))
        zeros = np.zeros(runs, dtype=np.int64)
        outputs.append(Outputs(statistics=np.array(seen)[:, None], low=zeros, off_grid=zeros.astype(bool)))
    bound = find_bound(outputs[0], outputs[1], delta=DELTA, alpha=ALPHA)
    assert (bound.epsilon > EPSILON) is flagged
