"""The wheel of `parley-client`: all of it is there, and it needs neither Parley nor PyTorch."""

from __future__ import annotations

import subprocess
import sys
from email import message_from_bytes
from pathlib import Path

import pytest

from tests.integration.test_wheel import ROOT, unpacked_wheel

SOURCE = ROOT / "deploy" / "packages" / "python"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked_wheel(SOURCE, tmp_path_factory.mktemp("wheel"))


def test_it_has_every_module_and_its_types(unpacked: Path) -> None:
    wanted = _files(SOURCE)
    assert _files(unpacked) == wanted
    assert {"py.typed", "plugins/__init__.py"} <= wanted


def _files(folder: Path) -> set[str]:
    package = folder / "parley_client"
    return {str(one.relative_to(package)) for one in package.rglob("*") if one.is_file() and one.suffix != ".pyc"}


def test_an_empty_environment_gets_neither_app_nor_models(unpacked: Path, tmp_path: Path) -> None:
    """By pip, into a folder that nothing else is in."""
    (wheel,) = unpacked.parent.glob("*.whl")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        str(tmp_path),
        str(wheel),
    ]
    subprocess.run(pip, check=True, capture_output=True)
    assert {one.name.partition("-")[0] for one in tmp_path.iterdir()} == {"parley_client"}
    program = (
        f"import sys; sys.path[:] = [one for one in sys.path if 'site-packages' not in one] + [{str(tmp_path)!r}]; "
    )
    program += (
        "import parley_client.plugins, importlib.util as u; print([u.find_spec(one) for one in ('app', 'models')])"
    )
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[None, None]"


def test_it_needs_httpx_alone(unpacked: Path) -> None:
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    needed = message_from_bytes(metadata.read_bytes()).get_all("Requires-Dist") or []
    assert [one for one in needed if "extra ==" not in one] == ["httpx>=0.27"]


def test_it_imports_nothing_of_parley_and_no_kafka(unpacked: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(unpacked)!r}); "
        "import parley_client; import parley_client.plugins; "
        f"assert parley_client.__file__.startswith({str(unpacked)!r}); "
        "assert 'httpx' not in sys.modules, 'the reader rule needs none'; parley_client.Parley; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'app', 'models', 'torch', 'aiokafka', 'faust', 'transformers', 'msgspec', 'pydantic'}))"
    )
    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
