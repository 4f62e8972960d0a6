"""How far results are from their references, and who is to blame."""
