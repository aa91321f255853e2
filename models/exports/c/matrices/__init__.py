"""Products with stored matrices in C, each class in its own way; `products.py` has the registry."""
