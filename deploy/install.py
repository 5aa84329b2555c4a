"""Install Parley into the environment of this interpreter: `.venv/bin/python deploy/install.py local,minilm`.

`make` calls it once it has made `.venv`. Only the standard library is there then.

PyPI has PyTorch for CUDA alone, most of what is installed. PyTorch's own index has it for CPUs; uv knows it as a
backend (https://docs.astral.sh/uv/guides/integration/pytorch). The demo takes it where no NVIDIA GPU is and that index
answers; UV_TORCH_BACKEND decides otherwise. Its hashes are not those of the lock file, so PyTorch alone is not
compared with one then. From PyPI, the demo does without triton, which is for GPUs only, where none is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = [sys.executable, "-m", "uv"]
BACKEND = "UV_TORCH_BACKEND"
FOR_GPUS = ("triton",)
LIGHT_PACKAGE = "./deploy/packages/python"
"""As a package of its own, too: plug-ins depend on it by its name."""
# uv tries again for half a minute otherwise.
_PROBE = {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "5"}
_PROBE_S = 30.0
_TELL_EVERY_S = 10.0


def main(extras: str) -> int:
    if subprocess.run([*UV, "--version"], capture_output=True, check=False).returncode:
        say("fetching uv, which installs the rest")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"]
        if code := subprocess.run(pip, check=False).returncode:
            return code
    backend = os.environ.get(BACKEND) or backend_for(extras)
    with tempfile.TemporaryDirectory() as folder:
        command = command_of(extras, backend, Path(folder))
        say(f"installing into {Path(sys.prefix).name}: {size_of(extras, backend)}")
        with told_while_it_lasts():
            code = subprocess.run(command, cwd=ROOT, check=False).returncode
            if not code:
                compile_kernels()
            if not code and not is_for_demo(extras):
                compile_packages()
    return code


def compile_kernels() -> None:
    """Of this CPU; the first start of a worker would do it otherwise."""
    subprocess.run([sys.executable, "-m", "models.kernels.build"], cwd=ROOT, capture_output=True, check=False)


def compile_packages() -> None:
    """Also those that `make demo` has installed, which uv would leave out. Tests start hundreds of processes, many of
    them at once, and where Python may not write bytecode each would compile all that it imports.
    """
    packages = sysconfig.get_path("purelib")
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-j", "0", packages], capture_output=True, check=False)


def backend_for(extras: str) -> str:
    """What is tested is what is locked, and kernels for GPUs are compiled without one."""
    return backend_of_this_machine() if is_for_demo(extras) else ""


def backend_of_this_machine() -> str:
    """`cpu`, or nothing for what PyPI has."""
    if has_gpu():
        return ""
    say("no NVIDIA GPU here; asking whether PyTorch's index has the build for CPUs")
    probe = [*UV, "pip", "install", "--quiet", "--dry-run", "--no-deps", "--torch-backend", "cpu", torch_requirement()]
    with tempfile.TemporaryDirectory() as target:
        try:
            found = subprocess.run(
                [*probe, "--target", target],
                env=os.environ | _PROBE,
                capture_output=True,
                timeout=_PROBE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            found = None
    if found is not None and found.returncode == 0:
        return "cpu"
    say("that index does not answer; PyPI's PyTorch brings CUDA along")
    return ""


def is_for_demo(extras: str) -> bool:
    """Whether nothing is tested or changed in this environment."""
    return "dev" not in extras.split(",")


def has_gpu() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def command_of(extras: str, backend: str, folder: Path) -> list[str]:
    """What installs it. `folder` takes files that are needed until then."""
    command = [*UV, "pip", "install", "--python", sys.executable, "-e", f".[{extras}]", "-e", LIGHT_PACKAGE]
    if backend:
        constraints = folder / "constraints.txt"
        constraints.write_text(without_cuda((ROOT / "constraints.txt").read_text()))
        return [*command, "-c", str(constraints), "--torch-backend", backend]
    if is_for_demo(extras) and not has_gpu():
        excluded = folder / "excluded.txt"
        excluded.write_text("\n".join(FOR_GPUS))
        command += ["--excludes", str(excluded)]
    if not is_for_demo(extras) and has_other_torch():
        command += ["--reinstall-package", "torch"]  # its version fits, and its build is not the one that is locked
    return [*command, "-c", "constraints.txt"]


def has_other_torch() -> bool:
    """Whether the demo has installed a build of PyTorch's own index, as 2.15.0+cpu."""
    try:
        return "+" in metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False


def without_cuda(constraints: str) -> str:
    """The lock file without PyTorch's hashes, which are those of another build, and without what that build needs."""
    kept = []
    for entry in re.split(r"\n(?=[A-Za-z0-9])", constraints):
        if re.match(r"(nvidia-|cuda-|triton==)", entry):
            continue
        kept.append(entry.split(" \\", 1)[0] if entry.startswith("torch==") else entry.rstrip("\n"))
    return "\n".join(kept) + "\n"


def torch_requirement() -> str:
    found = re.search(r"^torch==\S+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    return found[0] if found else "torch"


def size_of(extras: str, backend: str) -> str:
    """Measured with PyPI's builds for Linux on x86-64; a GPU's triton is a gigabyte of it."""
    for_all = not is_for_demo(extras)
    if backend == "cpu":
        return f"some {'3' if for_all else '1.5'} GB, about a minute where packages are near"
    disk = ("8" if for_all else "6") if has_gpu() or for_all else "5"
    load = "3.5" if for_all else "2.5"
    return (
        f"{disk} GB on disk, {load} GB to download unless uv has them, most of it PyTorch and CUDA; "
        f"{'three minutes' if for_all else 'a minute'} where packages are near, "
        f"{'six' if for_all else 'five'} minutes more at 100 Mbit/s"
    )


@contextmanager
def told_while_it_lasts() -> Iterator[None]:
    """A line now and then. In a terminal uv shows how far it is."""
    if sys.stderr.isatty():
        yield
        return
    done, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not done.wait(_TELL_EVERY_S):
            say(f"still installing, for {time.monotonic() - began:.0f} s so far")

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
