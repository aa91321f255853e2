"""Any network, as a graph of ONNX operators: what is in it, and what it becomes."""
