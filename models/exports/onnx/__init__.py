"""Models as ONNX files, written by hand from the matrices in which they are applied.

Nothing is traced: a loop that is traced keeps the length it was traced with, and our kernels cannot
be traced at all. `export.py` writes a file, `verify.py` runs it beside the model.
"""
