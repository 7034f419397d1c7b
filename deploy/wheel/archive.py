"""Writes a wheel: a zip archive with a RECORD, the same bytes for the same content."""

import base64
import hashlib
import os
import stat
import time
import zipfile

_EARLIEST = 315532800  # 1980-01-01, where zip's calendar begins


def _timestamp():
    seconds = max(int(os.environ.get("SOURCE_DATE_EPOCH", _EARLIEST)), _EARLIEST)
    return time.gmtime(seconds)[:6]


def _digest(content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return "sha256=" + digest.rstrip(b"=").decode()


def _write(archive, name, content, executable, timestamp):
    entry = zipfile.ZipInfo(name, timestamp)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3  # Unix: the mode counts
    entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    archive.writestr(entry, content, compresslevel=9)


def write_wheel(folder, dist_info, target):
    """Packs all files of `folder`; the `dist_info` folder comes last, its RECORD at the very end."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    files.sort(key=lambda path: path.relative_to(folder).parts[0] == dist_info)
    timestamp = _timestamp()
    record = []
    with zipfile.ZipFile(target, "w") as archive:
        for path in files:
            name = path.relative_to(folder).as_posix()
            content = path.read_bytes()
            executable = bool(path.stat().st_mode & stat.S_IXUSR)
            _write(archive, name, content, executable, timestamp)
            record.append(f"{name},{_digest(content)},{len(content)}")
        record.append(f"{dist_info}/RECORD,,\n")
        _write(archive, f"{dist_info}/RECORD", "\n".join(record).encode(), False, timestamp)
