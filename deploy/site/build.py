"""Builds the documentation as a site in build/site, with a llms.txt; a broken link is an error.

The pages link to each other and to files of the repository by relative paths, and keep their places: the README is the
front page, `docs` stays `docs`. Copied are the pages that can be reached from the README, and the files that they name.
Each page stands beside its HTML as Markdown, for programs that read (https://llmstxt.org).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES, SITE = ROOT / "build" / "site-pages", ROOT / "build" / "site"
FRONT, CONTENTS = Path("README.md"), Path("docs/README.md")
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)((?:#[^)]*)?\))")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_SUMMARY = "A stream processor for LLM chat on Kafka: answers as a log that goes on, token by token, after a crash."


class SiteError(Exception):
    """The site cannot be built; the message is one line for each reason."""


def pages() -> dict[Path, str]:
    """The text of each page that can be reached from the front page, by its path, with links to files alone."""
    found: dict[Path, str] = {}
    broken: list[str] = []
    open_ones = [FRONT, CONTENTS]
    while open_ones:
        page = open_ones.pop()
        if page in found:
            continue
        text = (ROOT / page).read_text(encoding="utf-8")
        codes = [match.span() for match in _CODE.finditer(text)]

        def linked(match: re.Match[str], page: Path = page, codes: list[tuple[int, int]] = codes) -> str:
            target = match[2]
            if ":" in target or any(begin <= match.start(2) < end for begin, end in codes):
                return match[0]
            path = Path(os.path.normpath(page.parent / target))
            if (ROOT / path).is_dir():
                path = path / "README.md"
                if not (ROOT / path).exists():  # a folder of the repository: its name stays
                    return match[1].removeprefix("[").removesuffix("](")
            if not (ROOT / path).is_file() or path.is_absolute() or path.parts[0] == "..":
                broken.append(f"{page}: {target} is not there")
                return match[0]
            if path.suffix == ".md":
                open_ones.append(path)
            else:
                (PAGES / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, PAGES / path)
            return f"{match[1]}{os.path.relpath(path, page.parent)}{match[3]}"

        found[page] = _LINK.sub(linked, text)
    if broken:
        raise SiteError("\n".join(broken))
    return found


def title_of(text: str) -> str:
    match = re.search(r"^# (.+)$", text, re.MULTILINE)
    return match[1].replace("`", "") if match else ""


def contents(found: dict[Path, str]) -> list[tuple[str, Path, str]]:
    """(title, page, what for) of what docs/README.md lists, each page once."""
    listed: dict[Path, tuple[str, Path, str]] = {}
    for line in re.split(r"\n(?=- )", found[CONTENTS]):
        purpose = " ".join(line.removeprefix("- ").split(":")[0].split()) if line.startswith("- ") else ""
        for _, target, _ in _LINK.findall(line):
            page = Path(os.path.normpath(CONTENTS.parent / target))
            if page in found and purpose:
                listed.setdefault(page, (title_of(found[page]) or page.stem, page, purpose))
    return list(listed.values())


def navigation(found: dict[Path, str]) -> str:
    lines = [f"  - Parley: {FRONT}", f"  - Documentation: {CONTENTS}"]
    lines += [f'  - "{title}": {page}' for title, page, _ in contents(found)]
    return "nav:\n" + "\n".join(lines) + "\n"


def llms_txt(found: dict[Path, str]) -> str:
    lines = [f"- [{title}]({page}): {purpose}" for title, page, purpose in contents(found)]
    return "\n".join(["# Parley", "", f"> {_SUMMARY}", "", "## Docs", "", f"- [Parley]({FRONT}): overview", *lines, ""])


def build() -> None:
    """Raises `SiteError`."""
    for folder in (PAGES, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    PAGES.mkdir(parents=True)
    found = pages()
    for page, text in found.items():
        (PAGES / page).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / page).write_text(text, encoding="utf-8")
    config = PAGES.with_name("mkdocs.yml")
    config.write_text(Path(__file__).with_name("mkdocs.yml").read_text(encoding="utf-8") + navigation(found))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(config)]
    if subprocess.run(command, check=False, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}).returncode:
        raise SiteError("the pages have mistakes: the lines above name them")
    for page, text in found.items():
        (SITE / page).write_text(text, encoding="utf-8")
    (SITE / "llms.txt").write_text(llms_txt(found), encoding="utf-8")
    print(f"{len(found)} pages: build/site/index.html")


if __name__ == "__main__":
    try:
        build()
    except SiteError as error:
        sys.exit(str(error))
