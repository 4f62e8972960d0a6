"""Fused regions: what a body graph computes, as one nest of loops."""
