"""A differentially private linear support vector machine across institutions."""

from __future__ import annotations

from tallystick.estimators.linear_classifier import LinearClassifier

__all__ = ["LinearSVC"]


class LinearSVC(LinearClassifier):
    """Linear support vector machine (smoothed hinge; one against the rest for more than two classes).

    The descent is that of :class:`tallystick.LogisticRegression`: everything is chosen from public facts unless given.
    It has no probabilities; ``decision_function`` is the margin.

    Parameters
    ----------
    epsilon, delta, neighbours, mechanism, schema, bounds, and the descent's own
        As for :class:`tallystick.LogisticRegression`. ``l2`` is the penalty λ/2·‖w‖² beside the *mean* of the losses;
        scikit-learn's ``C`` is 1/(records·λ).

    Attributes
    ----------
    coef_, intercept_, classes_
        Coefficients refer to ``feature_names_in_``: after ``fit(federation)`` the encoded columns (numbers scaled to
        [-1, 1] by their declared bounds), after ``fit(X, y)`` the columns of ``X`` in their own units.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name = "linear_svc"
