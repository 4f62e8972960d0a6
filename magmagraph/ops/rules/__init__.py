"""What records say of operations: batching, sharding, stable forms, facts, ONNX."""
