"""Models of other libraries: ONNX files, and modules of PyTorch."""
