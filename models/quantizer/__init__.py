"""A GPTQ checkpoint is made, and a quantized model compared with the one that it was.

Nothing of it is in a worker: it loads both models as one would, so it lies above the loading, which reads what
`models.quantization` describes.
"""
