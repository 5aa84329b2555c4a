"""What is installed is what was locked: versions, hashes and nothing from elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.local.jars import CHECKSUMS, KAFKA_VERSION, read_checksums

ROOT = Path(__file__).parents[3]
LOCKS = sorted(path for path in ROOT.rglob("package-lock.json") if "node_modules" not in path.parts)


def test_every_locked_package_has_hashes_and_an_exact_version() -> None:
    entries = (ROOT / "constraints.txt").read_text().replace("\\\n", "").splitlines()
    assert len(entries) > 100
    for entry in entries:
        assert re.match(r"[a-z0-9.-]+==\S+( ;.*?)?\s+--hash=sha256:[0-9a-f]{64}", entry), entry
    assert "://" not in "".join(entries)


def test_every_jar_of_the_broker_has_a_checksum() -> None:
    checksums = read_checksums(CHECKSUMS)
    assert f"org/apache/kafka/kafka_2.13/{KAFKA_VERSION}/kafka_2.13-{KAFKA_VERSION}.jar" in checksums
    assert all(re.fullmatch(r"[0-9a-f]{64}", checksum) for checksum in checksums.values())


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.parent.name)
def test_every_locked_npm_package_has_a_hash_and_no_address(lock: Path) -> None:
    packages = {name: one for name, one in json.loads(lock.read_text())["packages"].items() if name}
    assert all("integrity" in one for one in packages.values() if not one.get("link"))
    assert not any("resolved" in one for one in packages.values())


def test_the_audit_covers_every_lock() -> None:
    folders = re.search(r"^NPM := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert folders
    assert set(folders[1].split()) == {path.parent.relative_to(ROOT).as_posix() for path in LOCKS}
