"""The hooks that pip calls for metadata."""

import pathlib


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    # The folder that pip unpacked the source into is the working directory; PKG-INFO lies in it.
    metadata = pathlib.Path("PKG-INFO").read_text("utf-8")
    fields = dict(line.split(": ", 1) for line in metadata.splitlines()[:20] if ": " in line)
    name = fields["Name"].replace("-", "_")
    folder = pathlib.Path(metadata_directory) / f"{name}-{fields['Version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(metadata, "utf-8")
    (folder / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    return folder.name
