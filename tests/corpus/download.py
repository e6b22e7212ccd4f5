"""Fetches the packages of `packages.txt` and unpacks their kernel sources: `python download.py FOLDER`.

Nothing of a package is installed or run, except that pip asks a source distribution for its metadata. A package whose
folder is there already is left alone, so that an interrupted download goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

SOURCES = frozenset({".py", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".inl"})
# These packages' metadata hooks look for a CUDA toolkit unless told not to.
NO_BUILD = {
    "MAMBA_SKIP_CUDA_BUILD": "TRUE",
    "CAUSAL_CONV1D_SKIP_CUDA_BUILD": "TRUE",
    "FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE",
}


def packages() -> Iterator[tuple[str, str, str, str]]:
    """(name, version, wheel or sdist, sha256) of each line."""
    for line in Path(__file__).with_name("packages.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, version, form, digest = line.split()
            yield name, version, form, digest


def download(name: str, version: str, form: str, digest: str, folder: Path) -> Path:
    """The archive in `folder`. Raises RuntimeError if it is not the one that `packages.txt` names."""
    only = "--only-binary=:all:" if form == "wheel" else "--no-binary=:all:"
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", only, "-d", str(folder)]
    if form == "sdist":
        command.append("--no-build-isolation")
    subprocess.run([*command, f"{name}=={version}"], check=True, env=os.environ | NO_BUILD)
    (archive,) = folder.iterdir()
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != digest:
        raise RuntimeError(f"{archive.name} has SHA-256 {found}, not {digest}")
    return archive


def members(archive: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Path and content of each kernel source; a source distribution's own top folder is left out."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if PurePosixPath(name).suffix in SOURCES:
                    yield PurePosixPath(name), wheel.read(name)
        return
    with tarfile.open(archive) as sdist:
        for member in sdist:
            path = PurePosixPath(member.name)
            content = sdist.extractfile(member) if member.isfile() and path.suffix in SOURCES else None
            if content is not None:
                yield path.relative_to(path.parts[0]), content.read()


def unpack(archive: Path, folder: Path) -> None:
    """Write the sources into `folder`, which appears only once they are all there."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        whole = Path(temporary) / folder.name
        for path, content in members(archive):
            if ".." in path.parts or path.is_absolute():
                raise RuntimeError(f"{archive.name} holds the path {path}")
            target = whole / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        whole.rename(folder)


def main(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, version, form, digest in packages():
        folder = root / name
        if folder.is_dir():
            continue
        with tempfile.TemporaryDirectory(dir=root) as temporary:
            unpack(download(name, version, form, digest, Path(temporary)), folder)
        print(f"{name} {version}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
