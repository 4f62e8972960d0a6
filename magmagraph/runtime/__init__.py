"""The machine: plans, feeds and states to arrays."""
