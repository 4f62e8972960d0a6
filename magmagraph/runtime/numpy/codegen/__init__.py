"""C for fused regions."""
