"""Graphs inside of operations (loops, branches, regions), and identities with a meaning."""
