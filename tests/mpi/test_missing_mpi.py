"""Ranks that do not come under a plain mpiexec: they are named long before the time-out."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

ONE = """
    import os, sys
    import numpy as np
    import magmagraph as mg
    rank = int(os.environ["PMI_RANK"])
    if sys.argv[1] != "silent":
        mg.distributed.init()
    if sys.argv[1] == "apart" and rank:
        mg.distributed.communicator().barrier()
    x, w = mg.input("x", ("batch", 4)), mg.var("w", init=np.ones(4, np.float32))
    loss = mg.mean((x @ w) ** 2)
    strategy = None if rank else mg.distributed.DataParallel()
    step = mg.optimizer.SGD(0.1).step(loss, [w], [x], [loss], distribute=strategy)
    step(np.ones((4, 4), np.float32))
"""

SAID = {
    # Never speaks to another rank; has begun to, and ends; waits elsewhere.
    "silent": r"CommunicationError: rank 0 of 2 waits for rank 1, which has ended, and has spoken",
    "ended": r"rank 0 of 2 has waited \d+ s in making the plan of a function on 2 ranks, at "
    r".*script.py:14 in <module>, for all ranks, and rank 1 is through with its program",
    "apart": r"rank [01] of 2 has waited \d+ s in .*, and rank [01] as long in .* on 2 ranks",
}


def test_a_rank_without_the_strategy_is_named_at_once(mpiexec_beside):
    """Three jobs beside each other: each of them waits some seconds to be sure."""
    with ThreadPoolExecutor(3) as threads:
        started = {kind: threads.submit(mpiexec_beside, kind, 2, ONE, kind) for kind in SAID}
    for kind, job in started.items():
        done = job.result()
        assert done.status != 0, kind
        assert re.search(SAID[kind], done.output), done.output
        assert done.left == []
