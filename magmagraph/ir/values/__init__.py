"""The values that users hold: tensors, their storage, and the state of variables."""
