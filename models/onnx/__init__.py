"""Models as ONNX files, written by hand from the matrices in which they are applied.

Nothing is traced: a loop that is traced keeps the length it was traced with, and our kernels cannot
be traced at all. `models.onnx.export` writes a file, `models.onnx.verify` runs it beside the model.
Both bring libraries that nothing else needs: import them where they are used.
"""
