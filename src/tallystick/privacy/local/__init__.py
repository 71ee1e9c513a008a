"""Local differential privacy: what a peer publishes of one record, so that nobody has to be trusted.

A record on the grid (integers) and its class go in, a :class:`~tallystick.privacy.local.records.PerturbedRecord` of a
few bytes comes out, drawn once. For any two records a peer might hold the probability of any outcome differs by a
factor of at most e^ε: replace-one on the peer's record. Whatever is computed from what was published is
post-processing. Which randomisers there are: ``randomiser.py``; proofs: ``subset.md``, ``labels.md``.
"""
