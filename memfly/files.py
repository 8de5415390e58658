"""Telling files apart by content, without reading gigabytes."""

from __future__ import annotations

import hashlib
from pathlib import Path


def fingerprint(path: Path) -> str:
    """Hash of a file's size, first and last MiB; of a folder, of its files' names and hashes. 16 hex digits."""
    digest = hashlib.sha256()
    if path.is_dir():
        for file in sorted(item for item in path.rglob("*") if item.is_file()):
            if any(part.startswith(".") for part in file.relative_to(path).parts):
                continue  # a download's own notes, with times in them
            digest.update(f"{file.relative_to(path)}\0{fingerprint(file)}\0".encode())
        return digest.hexdigest()[:16]
    size, part = path.stat().st_size, 1 << 20
    digest.update(str(size).encode())
    with path.open("rb") as opened:
        digest.update(opened.read(part))
        opened.seek(max(0, size - part))
        digest.update(opened.read(part))
    return digest.hexdigest()[:16]
