"""Networks of others, as ONNX graphs."""
