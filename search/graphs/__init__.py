"""Networks of others, as ONNX files: what a study does with them."""
