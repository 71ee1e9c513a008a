"""Golf, gossip learning with linear models [OHJ13, HJ17]: models walk from peer to peer, learn and merge.

Every peer holds one example and one model. Once a cycle it sends its model to a random peer, which updates it with its
own example and merges it with its own model (``settings``, ``kernels``). A *walk* is one model alone (``walks``):
all that can be had where gradients are perturbed, because a peer's budget pays for few of them.
"""
