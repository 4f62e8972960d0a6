"""Fused regions: analyze a body graph as one nest of loops."""
