"""CUDA C for fused regions, and its launches."""
