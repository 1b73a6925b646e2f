"""As much of PyTorch as llama.cpp's converter needs to reorder tensors in float32, over numpy.

PyTorch itself is a gigabyte that nothing else here needs. What the converter does to a tensor is done
by the converter's own code; this only gives its calls their meaning.
"""

import numpy as np

float32, float16, float64 = np.dtype("float32"), np.dtype("float16"), np.dtype("float64")
int8, int16, int32, int64 = (np.dtype(f"int{bits}") for bits in (8, 16, 32, 64))
uint8, bool = np.dtype("uint8"), np.dtype("bool")
# Never held: each a type of its own.
bfloat16 = np.dtype([("bfloat16", "u2")])
float8_e4m3fn, float8_e5m2 = np.dtype([("e4m3", "u1")]), np.dtype([("e5m2", "u1")])
long, dtype, Size = int64, np.dtype, tuple


class Tensor(np.ndarray):
    def view(self, *shape):
        if len(shape) == 1 and isinstance(shape[0], np.dtype):
            return np.ndarray.view(self, shape[0])
        return self.reshape(*shape)

    def permute(self, *order):
        return np.ndarray.transpose(self, *order)

    def transpose(self, first, second):
        return self.swapaxes(first, second)

    def contiguous(self):
        return _tensor(np.ascontiguousarray(self))

    def unsqueeze(self, dim):
        return np.expand_dims(self, dim)

    def squeeze(self, dim=None):
        return np.ndarray.squeeze(self, axis=dim)

    def chunk(self, count, dim=0):
        return [part for part in np.split(self, count, axis=dim)]

    def split(self, sizes, dim=0):
        return split(self, sizes, dim)

    def to(self, kind):
        return self.astype(kind)

    def float(self):
        return self.astype(float32)

    def dim(self):
        return self.ndim

    def numel(self):
        return self.size

    def numpy(self):
        return np.asarray(self)


def _tensor(array):
    return np.asarray(array).view(Tensor)


def from_numpy(array):
    return np.ndarray.view(array, Tensor)


def tensor(values, dtype=None):
    return _tensor(np.array(values, dtype=dtype))


def arange(*bounds, dtype=None):
    return _tensor(np.arange(*bounds, dtype=dtype))


def zeros(*shape, dtype=float32):
    return _tensor(np.zeros(shape, dtype=dtype))


def empty(*shape, dtype=float32):
    return zeros(*shape, dtype=dtype)


def exp(values):
    return np.exp(values)


def stack(tensors, dim=0):
    return _tensor(np.stack(tensors, axis=dim))


def cat(tensors, dim=0):
    return _tensor(np.concatenate(tensors, axis=dim))


concat = cat


def split(whole, sizes, dim=0):
    if isinstance(sizes, int):
        sizes = [sizes] * (whole.shape[dim] // sizes)
    return [_tensor(part) for part in np.split(whole, np.cumsum(sizes)[:-1], axis=dim)]
