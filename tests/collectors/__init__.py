"""Collectors of others read the traces: `make collectors`.

One answer of a program is traced over gateway, worker, tool, approval and child, by OTLP. Jaeger and Arize Phoenix, as
they come, are asked for it, and each has to tell the same tree, with GenAI's attributes as it shows them.
"""
