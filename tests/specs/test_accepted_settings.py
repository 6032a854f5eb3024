"""Settings that a person accepted after the file changed in a place that a run could write."""

from pathlib import Path

from wakeful import settings


def test_an_accepted_text_that_this_release_refuses_leaves_the_settings_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "sessions.d").mkdir()
    reader = settings.ProjectReader(tmp_path / "sessions.d", {}, accept=lambda path: b"unknown_key: 1\n")
    reading = reader.read()
    assert "unknown key 'unknown_key'" in str(reading.refused)
    assert reading.settings == settings.default_settings()
