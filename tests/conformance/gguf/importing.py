"""What both comparisons need: rankd --import, and the numbers of the folder that it wrote."""

import json
import os
import subprocess
import sys

import numpy as np

IMPORT_MAX_S = 300


def import_gguf(build, file, into, name):
    """The model's folder; rankd's message when there is none."""
    done = subprocess.run([f"{build}/bin/rankd", "--import", file, "--into", into, "--name", name],
                          capture_output=True, timeout=IMPORT_MAX_S)
    folder = os.path.join(into, name)
    if done.returncode != 0 or not os.path.exists(os.path.join(folder, "config.json")):
        sys.exit(f"rankd --import {file}: exit {done.returncode}\n{done.stdout[-800:]!r}\n"
                 f"{done.stderr.decode(errors='replace')[-800:]}")
    return folder


class Folder:
    """Its tensors as float32, quantised ones as scale * q + bias."""

    TYPES = {"F32": np.float32, "F16": np.float16, "U32": np.uint32, "BF16": np.uint16, "U8": np.uint8}

    def __init__(self, path):
        with open(os.path.join(path, "config.json")) as file:
            self.config = json.load(file)
        self.file = os.path.join(path, "model.safetensors")
        with open(self.file, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            self.header = json.loads(file.read(size))
        self.begin = 8 + size

    def raw(self, name):
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        with open(self.file, "rb") as file:
            file.seek(self.begin + begin)
            array = np.frombuffer(file.read(end - begin), dtype=self.TYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        return array.reshape(entry["shape"])

    def bits(self, module):
        quantization = self.config["quantization"]
        return quantization.get(module, quantization)["bits"]

    def mxfp4(self, module):
        """4-bit floats, 32 of a row with a power of two."""
        codes = np.repeat(self.raw(module + ".weight").view(np.uint8), 2, axis=1)
        codes = np.where(np.arange(codes.shape[1]) % 2 == 0, codes & 15, codes >> 4)
        values = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)[codes & 7]
        powers = np.exp2(self.raw(module + ".scales").astype(np.float32) - 127)
        return np.where(codes > 7, -values, values) * np.repeat(powers, 32, axis=1)

    def numbers(self, module):
        weight = self.raw(module + ".weight")
        if module + ".scales" not in self.header:
            return weight.astype(np.float32)
        if module + ".biases" not in self.header:
            return self.mxfp4(module)
        bits, rows = self.bits(module), weight.shape[0]
        stream = np.unpackbits(weight.view(np.uint8), axis=1, bitorder="little")
        q = stream.reshape(rows, -1, bits) @ (1 << np.arange(bits, dtype=np.uint32))
        scales, biases = (self.raw(f"{module}.{part}").astype(np.float32)
                          for part in ("scales", "biases"))
        groups = q.reshape(rows, -1, 32).astype(np.float32)
        return (groups * scales[:, :, None] + biases[:, :, None]).reshape(rows, -1)
