"""Claim: the arena is at most a tenth larger than the largest live set of the schedule.

Prints, for graphs of several kinds, the bytes planned, what keeping every intermediate value would
take, and what three standard orders would need alive.
"""

from __future__ import annotations

import common
import opening


def _graphs() -> dict[str, tuple[list, list, dict]]:
    import networks

    import magmagraph as mg

    x = mg.var("x", shape=(256, 128))
    init = mg.init.glorot_uniform(seed=0)

    def weight(name: str, rows: int, columns: int) -> mg.Node:
        return mg.var(name, shape=(rows, columns), init=init)

    chain = x
    for i in range(12):
        chain = mg.tanh(chain @ weight(f"c{i}", 128, 128))
    left = x @ weight("l", 128, 512)
    right = x @ weight("r", 128, 64)
    diamond = mg.relu(left) @ weight("d", 512, 64) + right
    residual = x
    for i in range(6):
        inner = mg.relu(mg.layer_norm(residual) @ weight(f"a{i}", 128, 256))
        residual = residual + inner @ weight(f"b{i}", 256, 128)
    query, key, value = (x @ weight(name, 128, 128) for name in "qkv")
    attention = mg.softmax(query @ key.T / 11.3) @ value
    down = [x]
    for i in range(4):
        down.append(mg.relu(down[-1] @ weight(f"u{i}", 128, 128)))
    ushape = down[-1]
    for i, skip in enumerate(reversed(down[:-1])):
        ushape = mg.relu(ushape @ weight(f"w{i}", 128, 128)) + skip
    graphs: dict[str, tuple[list, list, dict]] = {
        "chain of 12 layers": ([x], [mg.sum(chain)], {}),
        "diamond": ([x], [mg.sum(diamond)], {}),
        "residual net": ([x], [mg.sum(residual)], {}),
        "attention": ([x], [attention], {}),
        "U with skips": ([x], [ushape], {}),
    }
    for name, loss in (("residual net", residual), ("U with skips", ushape)):
        scalar = mg.mean(mg.square(loss))
        graphs[f"{name}, with gradient"] = ([x], [scalar, mg.grad(scalar, x)], {})
    step, _, _ = networks.training_step(4, 100)
    updates = dict(step._user_updates)
    graphs["training step, L = 4"] = (list(step.inputs), list(step._user_outputs), updates)
    return graphs


def main() -> None:
    opening.words(__doc__)
    cleared = common.clean_environment()
    import magmagraph as mg
    from magmagraph.ir.plan import Place
    from magmagraph.passes.lowering.schedule import (
        _depth_first,
        _greedy,
        _program,
        best_order,
        largest_live,
        problem,
    )

    results = {}
    rows = []
    for name, (inputs, outputs, updates) in _graphs().items():
        f = mg.function(inputs, outputs, updates=updates)
        plan = f.plan
        every = sum(s.size for s in plan.slots if s.place is Place.ARENA)
        fused = next(after for label, _, after in f.report.steps() if label == "fuse")
        case = problem(fused, {})
        orders = {
            "program": largest_live(case, _program(case)),
            "depth first": largest_live(case, _depth_first(case, largest_first=False)),
            "greedy": largest_live(case, _greedy(case)),
            "chosen": largest_live(case, best_order(case)),
        }
        results[name] = {
            "arena": plan.arena, "largest_live": plan.largest_live, "kept_all": every,
            "orders": orders, "steps": len(plan.steps),
        }
        rows.append(
            (name, len(plan.steps), f"{plan.arena / 1024:.0f}", f"{plan.largest_live / 1024:.0f}",
             f"{every / 1024:.0f}", *(f"{value / 1024:.0f}" for value in orders.values()))
        )
    common.table(
        rows,
        ("graph", "steps", "arena KiB", "largest live", "all kept", "program", "depth first",
         "greedy", "chosen"),
    )
    print(common.write("memory", results, cleared=cleared))


if __name__ == "__main__":
    main()
