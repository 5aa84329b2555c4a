"""Kernels of a CPU: what a decoder computes between its matrix products, a row at a time; and products of weights as
a checkpoint stores them (multiply.py).

A step of a small batch has a hundred small operations of torch in each layer, and each takes longer to start than to
compute. Here they are five, written in Python, compiled by Numba once for a machine (build.py) and called by torch
without the interpreter (library.py).

Two things hold that torch's operations do not give. A row's result depends on that row alone: a token has the same bits
in a chunk of its prompt, by itself, and among others. And the order of every sum is written down (sums.py), whatever
the vectors of a CPU: with products of integers or of stored weights, the whole forward pass has the same bits on all.

And they draw the next tokens (draw.py).
"""
