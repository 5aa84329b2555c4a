"""`make gpu`: what a GPU does with the engine, in at most ten minutes, on a machine without a registry.

It takes Python 3.11 or later, and PyTorch with CUDA. What else is there decides which steps run: transformers for the
engine, pytest for the tests of a GPU, a worker's packages for the broker in memory. Each step is a process of its own
with a budget, so what one of them breaks ends no other, and each figure is a line of JSON at once, in
`build/gpu/results.jsonl`. Beside torch, two packages that only forms of answers need have stand-ins. Packages may be
carried: `WHEELS` is a folder of wheels, which `python -m tests.gpu.wheels FOLDER 3.12` fills on a machine with a
registry.

`make gpu DEVICE=cpu SCALE=tiny` runs the same steps without a GPU: figures of nothing, and the script is tried.
"""
