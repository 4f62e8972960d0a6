"""Launches: on streams, captured as graphs, repeated, timed, between devices."""
