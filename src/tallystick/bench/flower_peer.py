"""Flower's SecAgg+ workflow beside ours, unchanged, every party in this process; None where Flower is not installed.

The server's workflow and the clients' mod talk through a driver that copies each message by Flower's own serialisation,
whose seconds are not counted: transport is excluded here as it is for ours. Values are clipped to [−8, 8] and quantised
to 22 bits, and masks come from MT19937 seeded with 32 bits of the key, as Flower has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray


class FlowerPeer:
    """So many clients of so many entries; ``seconds()`` is one round with the last ``dropped`` of them lost."""

    def __init__(self, clients: int, size: int, *, shares: int, threshold: int, dropped: int) -> None:
        """``shares`` counts a client's own; raises ``ImportError`` where Flower is not installed."""
        self._mod = import_module("flwr.client.mod.secure_aggregation.secaggplus_mod").secaggplus_mod
        self._workflow = import_module("flwr.server.workflow").SecAggPlusWorkflow(shares, threshold)
        self._common = import_module("flwr.common")
        self._message = import_module("flwr.common.message")
        self._compat = import_module("flwr.common.recordset_compat")
        self._names = import_module("flwr.common.secure_aggregation.secaggplus_constants")
        self._serde = import_module("flwr.common.serde")
        self._constants = import_module("flwr.server.workflow.constant")
        self._legacy = import_module("flwr.server").LegacyContext
        import_module("flwr.common.logger").logger.setLevel("ERROR")
        self.clients, self.dropped, self._copying = clients, set(range(clients - dropped + 1, clients + 1)), 0.0
        self._values = np.linspace(-1, 1, size, dtype=np.float32)
        self._parameters = self._common.ndarrays_to_parameters([self._values])
        self._contexts: dict[int, Any] = {}

    def seconds(self) -> float:
        """CPU seconds of one round."""
        self._copying = 0.0
        self._contexts = {node: self._context(node) for node in range(1, self.clients + 1)}
        context = self._legacy(context=self._context(0), strategy=_Strategy(self, self._common.parameters_to_ndarrays))
        record = self._compat.parameters_to_parametersrecord(self._parameters, True)
        context.state.parameters_records[self._constants.MAIN_PARAMS_RECORD] = record
        configs = self._common.ConfigsRecord({self._constants.Key.CURRENT_ROUND: 1})
        context.state.configs_records[self._constants.MAIN_CONFIGS_RECORD] = configs
        started = time.process_time()
        self._workflow(self, context)
        spent = time.process_time() - started - self._copying
        found = context.strategy.average
        if found is None or not np.allclose(found, self._values, atol=1e-3):
            raise RuntimeError("Flower's round did not end with the average")  # a bug of this bench, not an input
        return spent

    def create_message(self, content: Any, message_type: str, dst_node_id: int, group_id: str) -> Any:
        """A message to a client, as a driver makes it."""
        return self._message.Message(self._metadata(0, dst_node_id, group_id, message_type), content=content)

    def send_and_receive(self, messages: Iterable[Any], timeout: float | None = None) -> list[Any]:
        """Every client's answer in turn; those lost are not heard once vectors are asked for."""
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            copied = self._message.Message(message.metadata, content=self._copied(message.content))
            stage = copied.content.configs_records[self._names.RECORD_KEY_CONFIGS][self._names.Key.STAGE]
            reply = self._mod(copied, self._contexts[node], self._fit)
            if node in self.dropped and stage == self._names.Stage.COLLECT_MASKED_VECTORS:
                continue
            metadata = self._metadata(node, 0, message.metadata.group_id, message.metadata.message_type)
            replies.append(self._message.Message(metadata, content=self._copied(reply.content)))
        return replies

    def fit_instructions(self) -> list[tuple[Any, Any]]:
        """What the strategy tells every client."""
        empty = self._common.FitIns(self._common.ndarrays_to_parameters([]), {})
        return [(_Proxy(node), empty) for node in range(1, self.clients + 1)]

    def _fit(self, message: Any, _context: Any) -> Any:
        status = self._common.Status(self._common.Code.OK, "")
        result = self._common.FitRes(status, self._parameters, 1000, {})  # the weight it is most exact at
        return message.create_reply(self._compat.fitres_to_recordset(result, True))

    def _metadata(self, source: int, to: int, group: str, kind: str) -> Any:
        return self._message.Metadata(
            run_id=1,
            message_id="",
            src_node_id=source,
            dst_node_id=to,
            reply_to_message="",
            group_id=group,
            ttl=3600.0,
            message_type=kind,
        )

    def _context(self, node: int) -> Any:
        empty = self._common.RecordSet()
        return self._common.Context(run_id=1, node_id=node, node_config={}, state=empty, run_config={})

    def _copied(self, content: Any) -> Any:
        started = time.process_time()
        copy = self._serde.recordset_from_proto(self._serde.recordset_to_proto(content))
        self._copying += time.process_time() - started
        return copy


class _Proxy:
    def __init__(self, node: int) -> None:
        self.node_id = node


class _Strategy:
    """All clients, and the average as it comes."""

    def __init__(self, peer: FlowerPeer, arrays: Callable[[Any], list[Any]]) -> None:
        self._peer, self._arrays = peer, arrays
        self.average: NDArray[np.float64] | None = None

    def configure_fit(self, _round: int, _parameters: Any, _manager: Any) -> list[tuple[Any, Any]]:
        return self._peer.fit_instructions()

    def aggregate_fit(self, _round: int, results: list[Any], _failures: list[Any]) -> tuple[Any, dict[str, Any]]:
        parameters = results[0][1].parameters
        self.average = self._arrays(parameters)[0]
        return parameters, {}
