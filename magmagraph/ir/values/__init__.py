"""The values that users hold: tensors, what is under them, and the state of variables."""
