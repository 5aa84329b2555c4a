"""A release is the same whoever builds it, and does not leave without its changelog."""

from __future__ import annotations

import json
import re
import subprocess
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def releasing() -> ModuleType:
    spec = spec_from_file_location("release", ROOT / "deploy" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def commit() -> str:
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def test_two_builds_have_the_same_hashes(releasing: Any, commit: str, tmp_path: Path) -> None:
    first = releasing.release(commit, tmp_path / "first", with_sbom=False)
    time.sleep(2.1)  # entries of an archive have even seconds
    again = releasing.release(commit, tmp_path / "again", with_sbom=False)
    assert [one.name for one in first] == [one.name for one in again]
    assert len([one for one in first if one.suffix == ".whl"]) == 3
    assert [releasing.sha256(one) for one in first] == [releasing.sha256(one) for one in again]
    stated = json.loads((tmp_path / "first" / "provenance.json").read_text())
    hashes = dict(line.split()[::-1] for line in first[-1].read_text().splitlines())
    assert {one["name"]: one["digest"]["sha256"] for one in stated["subject"]}.items() <= hashes.items()
    assert stated["predicate"]["buildDefinition"]["externalParameters"] == {"commit": commit}


def test_a_tag_that_is_not_the_version_is_refused(releasing: Any, tmp_path: Path) -> None:
    with pytest.raises(releasing.ReleaseError, match="git show"):
        releasing.release("v9.9.9", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_changelog_has_a_section_of_the_version_and_says_what_may_break(releasing: Any) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    section = releasing.changes(changelog, version[1])
    assert section.startswith(f"# Parley {version[1]} (")
    assert "### Upgrading" in section
    with pytest.raises(releasing.ReleaseError, match=r"no section 9\.9"):
        releasing.changes(changelog, "9.9")


def test_the_workflow_has_only_the_rights_that_it_needs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    assert workflow["permissions"] == {}
    (job,) = workflow["jobs"].values()
    assert set(job["permissions"]) == {"contents", "id-token", "attestations"}
    assert all("@v" in step["uses"] for step in job["steps"] if "uses" in step)
