"""A stand-in for vLLM, 0.24 and 0.33 alike: the names that Parley uses, where vLLM has them, with its parameters.

`test_contract.py` compares it with the real one where that is installed.
"""
