"""A classifier that peers learn from each other's perturbed records, with nobody in the middle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.gossip.design import GossipProgram
from tallystick.algorithms.gossip.moments import GossipModel
from tallystick.algorithms.gossip.settings import gossip_settings
from tallystick.algorithms.program import State
from tallystick.engines.federation import Federation
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PROMISE, PrivateEstimator
from tallystick.estimators.scored_classes import ScoredClasses
from tallystick.study.declared_values import label_text
from tallystick.study.schema import FeatureLayout


@dataclass(kw_only=True, eq=False, repr=False)
class GossipClassifier(ScoredClasses, PrivateEstimator):
    """A linear classifier under local differential privacy (``trust="gossip"``): nobody has to be trusted.

    Every peer perturbs its records once, before anything of them leaves; all learning is done on what was published.
    ``epsilon`` is that of each record, pure unless ``randomiser="gaussian"``. Noise in every record instead of noise in
    a sum needs many more records: where two parties can be found that do not collude,
    :class:`tallystick.LogisticRegression` is far more accurate.

    Parameters
    ----------
    learner : "moments", "pegasos" or "logistic"
        "moments": unbiased first and second moments of the records, and the classifier that follows from them; knows
        the noise. The others are walks of models from peer to peer (Golf).
    loss : "square", "logistic" or "hinge"
        What the classifier of "moments" minimises. "square" needs the moments alone. The others are for what is known
        of each record behind its noise; with more than two classes they need labels that are published.
    perturb : "data", "gradient" or "none"
        What is perturbed: the records, once; every gradient; or nothing, in a simulation, for comparison.
    randomiser : "subset", "laplace" or "gaussian"
        How (docs/protocols/gossip.md). "subset" is the default and nearly always the most accurate; "laplace" is the
        published one; "gaussian" has a delta.
    cycles : "auto" or int
        Of the walks: how often every peer sends its model; of perturbed gradients, how often the one model comes to
        every peer, as long as budgets last. "auto" is 300, or as often as budgets last (five times if they halve);
        between real peers 300 peers / records, from 30 to 300: a visit there is to all records of a peer.
    lambda_ : float
        Penalty of the walks' learners, and of the losses other than "square".
    label : "auto", "sign", "randomised" or "per-class"
        How the class is published; "auto" chooses from epsilon and the number of classes.
    origin : "lower" or "centre"
        What a coordinate of 0 means: a number's lower bound, or the middle of its bounds.
    intercept : float
        The constant coordinate of two classes, in widths of a column.
    basis, shape, kept
        "dct": learn from the first ``kept`` cosines of columns that are a grid of sides ``shape``, e.g. the pixels of
        an image. A public transform: chosen without looking at a record.
    weak_epsilon : bool
        Let an epsilon above 10 through; the result says so.
    merging : "update-merge" or "merge-update"
        Whether a model learns at a peer before it is merged with the peer's own, as published, or after.
    strategy, uses, batch
        Of perturbed gradients: a record answers "once", ``uses`` times at epsilon/uses ("uses"), or with half of what
        is left ("halving"); ``batch`` records of a frame answer together, with the noise of one.
    epsilon, delta, neighbours, schema, bounds
        As for every estimator; neighbours are "replace-one": that a peer takes part is seen.

    Attributes
    ----------
    classes_, coef_, intercept_
        Scores are ``offset_`` + (``intercept_`` + ``coef_``·x)/‖φ(x)‖ for encoded columns x, φ(x) being the vector that
        is perturbed; one score for two classes, whose ``offset_`` is 0.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name: ClassVar[str] = "gossip_classifier"
    plain_trust: ClassVar[str] = "gossip"

    mechanism: str = "auto"
    learner: str = "moments"
    loss: str = "square"
    perturb: str = "data"
    randomiser: str = "subset"
    cycles: int | str = "auto"
    lambda_: float = 1e-4
    label: str = "auto"
    origin: str = "lower"
    intercept: float = 0.3
    basis: str | None = None
    shape: Any = None
    kept: Any = None
    weak_epsilon: bool = False
    merging: str = "update-merge"
    strategy: str = "once"
    uses: int = 1
    batch: int = 1

    def _study_program(self) -> dict[str, Any]:
        made = super()._study_program()
        gossip_settings(made)
        if made["loss"] == "square":  # studies from before there was a choice keep their hash
            del made["loss"]
        return {key: list(value) if isinstance(value, tuple) else value for key, value in made.items()}

    def _promise(self, fed: Federation) -> dict[str, Any]:
        promise = {name: getattr(self, name) for name in PROMISE}
        if self.mechanism == "auto":
            promise["mechanism"] = {"none": "none", "gradient": "laplace"}.get(self.perturb, self.randomiser)
        return promise

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        program: GossipProgram = self._program
        self._model = GossipModel(*state)
        self.intercept_, self.coef_ = program.space.columns(self._model.weights)
        self.offset_ = self._model.offsets
        self._take_classes(layout.classes)

    def _accept_plain(self, classes: NDArray[Any] | None) -> None:
        if classes is not None:
            self.classes_ = classes

    def _scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        scores = self._program.scores(self._model, features)
        return scores[:, 0] if scores.shape[1] == 1 else np.asarray(scores)

    def _answer(self) -> Answer:
        classes, rows = [label_text(c) for c in self.classes_.tolist()], []
        for at, (start, weights) in enumerate(zip(self.intercept_.tolist(), self.coef_.tolist())):
            of = {} if len(self.coef_) == 1 else {"class": classes[at]}
            terms = [("(intercept)", start), *zip(map(str, self._layout.names), weights)]
            rows += [{**of, "term": term, "coefficient": value} for term, value in terms]
        meaning = f"The sum of the terms tells {classes[-1]!r} from {classes[0]!r}; above 0 the former is predicted."
        if len(self.coef_) > 1:
            meaning = "The sum of a class's terms, over the record's length, and its offset are its score."
        return Answer.of(rows, [meaning, "Columns are encoded as the study declares them; no noise intervals."])

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        return {
            "type": type(self).__name__,
            "coef": self.coef_.tolist(),
            "intercept": self.intercept_.tolist(),
            "offset": self.offset_.tolist(),
            "classes": self.classes_.tolist(),
            "features": list(map(str, self._layout.names)),
        }
