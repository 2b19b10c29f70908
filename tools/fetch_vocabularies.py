#!/usr/bin/env python3
"""Fetches vocabularies and chat templates of many model families for octet's tests.

    tools/fetch_vocabularies.py [--folder models]

They lie inside the source package of llama-cpp-python on PyPI, which pip downloads with a pinned
checksum: GGUF files without weights go to FOLDER/vocabularies/, templates to FOLDER/templates/. What
is there already is kept. Needs Python's standard library and pip alone.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
# Where a member goes: the name is the only part of its path that is used.
MEMBERS = (
    (re.compile(r"[^/]+/vendor/llama\.cpp/models/(ggml-vocab-[a-z0-9-]+\.gguf)"), "vocabularies"),
    (re.compile(r"[^/]+/vendor/llama\.cpp/models/templates/([A-Za-z0-9._-]+\.jinja)"), "templates"),
)
LARGEST_MEMBER = 32 << 20
ATTEMPTS = 4


def say(text):
    print(f"vocabularies: {text}", file=sys.stderr, flush=True)


def download(folder, pause_s=3.0):
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--no-binary", PACKAGE, "--disable-pip-version-check", "--no-input"]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    for attempt in range(1, ATTEMPTS + 1):
        if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode == 0:
            return next(folder.glob("*.tar.gz"))
        if attempt < ATTEMPTS:
            say(f"attempt {attempt} of {ATTEMPTS} failed, trying again")
            time.sleep(pause_s * attempt)
    raise RuntimeError(f"pip could not download {PACKAGE} {VERSION}; its message is above.")


def unpack(archive_path, folder):
    """Writes the wanted members; gives their number. No path of the archive's choosing is used."""
    count = 0
    with tarfile.open(archive_path) as archive:
        for member in archive:
            for pattern, place in MEMBERS:
                match = pattern.fullmatch(member.name)
                if not match or not member.isfile() or member.size > LARGEST_MEMBER:
                    continue
                target = folder / place / match[1]
                target.parent.mkdir(parents=True, exist_ok=True)
                partial = target.with_name(f".{target.name}.partial")
                with archive.extractfile(member) as source, open(partial, "wb") as output:
                    shutil.copyfileobj(source, output)
                partial.replace(target)
                count += 1
    return count


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Fetches vocabularies and chat templates.")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("models"))
    folder = parser.parse_args(arguments).folder
    note = folder / ".vocabularies.fetched"
    state = f"{PACKAGE} {VERSION} {SHA256}\n"
    try:
        if note.is_file() and note.read_text(encoding="utf-8") == state:
            say(f"those of {PACKAGE} {VERSION} are here")
            return 0
        folder.mkdir(parents=True, exist_ok=True)
        say(f"downloading {PACKAGE} {VERSION} from PyPI (77 MB)")
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as work:
            count = unpack(download(pathlib.Path(work)), folder)
        if count == 0:
            raise RuntimeError(f"{PACKAGE} {VERSION} holds no vocabularies.")
        note.write_text(state, encoding="utf-8")
    except (OSError, RuntimeError, tarfile.TarError) as error:
        say(str(error))
        return 1
    say(f"{count} files are ready")
    return 0


if __name__ == "__main__":
    sys.exit(main())
