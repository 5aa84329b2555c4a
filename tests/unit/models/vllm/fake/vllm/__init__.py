"""A stand-in for vLLM 0.33: the names that Parley uses, where vLLM has them, with vLLM's own parameters.

`test_contract.py` compares it with the real one where that is installed.
"""
