"""The hooks that pip calls for metadata."""

import pathlib


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    # The folder that pip unpacked the source into is the working directory; PKG-INFO lies in it.
    folder = pathlib.Path(metadata_directory) / "package.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_bytes(pathlib.Path("PKG-INFO").read_bytes())
    (folder / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    return folder.name
