"""ONNX models as functions and networks: `from_onnx`."""
