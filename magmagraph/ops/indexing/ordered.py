"""Rows put at positions on a device in the order of positions: always the same value wins."""

from __future__ import annotations

from typing import Any

__all__ = ["put_in_order"]


def put_in_order(xp: Any, target: Any, at: Any, rows: Any, how: str) -> None:
    """Set rows, or take extremes, on a device: there scattered writes have no order.

    Nor do CuPy's extremes have more digits than float32, and they pass NaN over. So all is sorted
    by position, and written once.
    """
    if not rows.size:
        return
    if how == "set":
        order, _, ends = _runs(xp, at, xp.arange(at.size))
        target[at[order[ends]]] = rows[order[ends]]
        return
    width = rows.size // at.size
    places = (at[:, None] * width + xp.arange(width)).reshape(-1)
    values, flat = rows.reshape(-1), target.reshape(-1)
    order, starts, ends = _runs(xp, places, xp.argsort(values))
    where = places[order[ends]]
    combine = xp.minimum if how == "min" else xp.maximum
    least, most = values[order[starts]], values[order[ends]]  # NaN counts as the largest
    extreme = xp.where(most != most, most, least) if how == "min" else most
    flat[where] = combine(flat[where], extreme)
    target[...] = flat.reshape(target.shape)  # itself, where it is contiguous


def _runs(xp: Any, at: Any, order: Any) -> tuple[Any, Any, Any]:
    """Return an order by position, equal ones as they were, and masks of where runs begin and end.

    What is sorted are numbers of which no two are equal: that has one result, however it is done.
    """
    count = order.size
    order = order[xp.sort(at[order] * count + xp.arange(count)) % count]
    change = at[order[1:]] != at[order[:-1]]
    edge = xp.ones(1, change.dtype)
    return order, xp.concatenate([edge, change]), xp.concatenate([change, edge])
