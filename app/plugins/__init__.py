"""Plug-ins: which there are, and how the code of others runs in a worker without costing anybody else anything."""
