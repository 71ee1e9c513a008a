"""Run by ``test_spark_engine`` as a process of its own: a fit on a standalone master, an executor killed in between."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from pathlib import Path

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    from tests.engines.engine_contract import EngineContract, exact
    from tests.engines.test_spark_engine import CONF, spark_frame
    from tests.trust.test_same_bits import SCHEMA, frames

    import tallystick as ts
    from tallystick.engines.spark.session import start_session

    session = start_session(sys.argv[1], {**CONF, "spark.driver.host": "127.0.0.1", "spark.executor.memory": "500m"})
    parts, model = frames(), ts.LogisticRegression(rounds=4)
    fed = ts.Federation.simulate([spark_frame(session, part, 5) for part in parts], schema=SCHEMA, seed=11)
    fed.records(model.study_for(fed, target="ill", features=None))
    scheduler = f"spark://CoarseGrainedScheduler@127.0.0.1:{session.conf.get('spark.driver.port')}"
    command = f"CoarseGrainedExecutorBackend\0--driver-url\0{scheduler}"
    executors = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if command.encode() in entry.read_bytes():
                executors.append(int(entry.parent.name))
        except OSError:
            continue
    os.kill(executors[0], signal.SIGKILL)
    equal = exact(fed, model) == exact(EngineContract.memory(parts), model)
    print(f"executors {len(executors)} equal {equal}")
    session.stop()
