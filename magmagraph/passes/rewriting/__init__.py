"""Rewriting: patterns, rules, the driver that applies them, and what rules ask of nodes."""
