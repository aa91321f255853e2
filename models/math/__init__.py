"""Pure tensor functions, which know shapes and no spec. README.md has the derivations."""
