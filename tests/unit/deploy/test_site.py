"""The pages of the documentation's site: what is reached, and links that lead nowhere."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_build", ROOT / "deploy" / "site" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PAGES", tmp_path)
    return module


def test_every_page_of_the_documentation_is_on_the_site_and_in_llms_txt(site: ModuleType) -> None:
    found = site.pages()
    assert {path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")} <= {*found}
    listed = site.llms_txt(found)
    assert listed.startswith("# Parley\n\n> ")
    targets = [target for _, target, _ in site._LINK.findall(listed)]
    assert Path("docs/waits.md") in map(Path, targets)
    assert all((ROOT / target).is_file() for target in targets)


def test_a_link_that_leads_nowhere_stops_the_site(
    site: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Parley\n[there](docs/README.md) and [gone](docs/gone.md)")
    (tmp_path / "docs" / "README.md").write_text("# Docs\n`[code](is/no-link.md)` and [out](https://example.org/x.md)")
    monkeypatch.setattr(site, "ROOT", tmp_path)
    with pytest.raises(site.SiteError, match=r"^README\.md: docs/gone\.md is not there$"):
        site.pages()
