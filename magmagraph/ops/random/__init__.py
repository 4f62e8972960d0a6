"""Random numbers, made of counter-based bits."""
