"""`parley quantize`: a GPTQ checkpoint is made, and a quantized model compared with the one that it was.

Nothing of it is in a worker. It loads both models as one would, so it is installed beside Parley.
"""
