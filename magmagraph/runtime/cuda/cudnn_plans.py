"""The library's plans of all steps, chosen before launches are made."""

from __future__ import annotations

from . import cudnn_attention, cudnn_convolution
from .memory import PlanMemory

__all__ = ["settle"]


def settle(memory: PlanMemory) -> None:
    """Choose the library's plan for every step that it may run; what is chosen is kept."""
    for step in memory.plan.steps:
        if step.kernel == "convolution":
            cudnn_convolution.chosen(memory, step)
        elif step.kernel == "attention":
            cudnn_attention.chosen(memory, step)
