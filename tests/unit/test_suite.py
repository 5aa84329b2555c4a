"""`python -m tests`: the whole suite in tracks."""

from __future__ import annotations

import time
from pathlib import Path

from tests.__main__ import TRACKS, Track


def test_a_run_that_fails_fails_its_track_and_the_next_one_is_run(tmp_path: Path) -> None:
    failing, passing = tmp_path / "test_failing.py", tmp_path / "test_passing.py"
    failing.write_text("def test_it() -> None:\n    assert False\n")
    passing.write_text("def test_it() -> None:\n    pass\n")
    with (tmp_path / "log").open("w") as log:
        track = Track("example", [[str(failing)], [str(passing)]], log)
        while track.advance():
            time.sleep(0.1)
    assert track.failed
    assert ("1 failed" in track.text(), "1 passed" in track.text()) == (True, True)
    assert track.progress() == "example 100%"


def test_tracks_name_folders_that_exist_and_none_twice() -> None:
    paths = [path for runs in TRACKS.values() for run in runs for path in run]
    assert len(paths) == len(set(paths))
    assert all(Path(path).is_dir() for path in paths)
