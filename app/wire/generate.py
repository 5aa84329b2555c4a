"""Write `parley_pb2.py` and its types from `parley.proto`: `make proto`."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parents[2]
PROTO = "app/wire/parley.proto"


def generate(out: Path = PACKAGE_ROOT) -> int:
    """Run the compiler of grpcio-tools; `out` gets the same folders as the source."""
    protoc = import_module("grpc_tools.protoc")
    well_known = Path(str(protoc.__file__)).parent / "_proto"
    arguments = ["protoc", f"-I{PACKAGE_ROOT}", f"-I{well_known}", f"--python_out={out}", f"--pyi_out={out}", PROTO]
    return int(protoc.main(arguments))


if __name__ == "__main__":
    sys.exit(generate())
