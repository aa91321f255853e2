"""Models as C99 files: no library, no allocation, state in the caller's hands.

`export.py` writes a header and a source, `verify.py` compiles them and runs them beside the model.
The functions that the files share are C themselves, in `functions/`: a file gets those it calls.
"""
