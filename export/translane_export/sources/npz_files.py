"""Reads the arrays of a NumPy archive (.npz) as data: numbers in memory, and never a pickle.

An .npz file is a zip archive of .npy files. Members have to be stored as they are, as `numpy.savez` and Marian store
them: so no array is larger than the file is.
https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from translane_export.core.errors import ExportError
from translane_export.core.file_readers import UNREADABLE, broken_file
from translane_server.core.files import open_regular
from translane_server.core.terminal import shown

_NPZ = "NumPy archive (.npz)"
_TYPES = {"<f4", "<f2", "<f8", "|i1", "|u1"}
_MOST_DIMENSIONS = 8
_LONGEST_HEADER = 10_000  # bytes, as the library has it


def read_npz(path: Path) -> dict[str, Tensor]:
    """Return the arrays of `path` by name, as tensors.

    Raises:
        ExportError: the file is missing, damaged or no NumPy archive, or has anything but plain numbers of float32,
            float16, float64, int8 and uint8, in C order and not compressed.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise ExportError(
                    f"{path}: its arrays are compressed, which is not supported; save it with numpy.savez"
                )
            if sum(member.file_size for member in members) > path.stat().st_size:
                raise ExportError(f"{path}: it is damaged: its arrays take more bytes than the file has")
            arrays: dict[str, Tensor] = {}
            for member in members:
                name = member.filename.removesuffix(".npy")
                if name in arrays:
                    raise ExportError(f"{path}: it has the array {shown(name)} twice")
                arrays[name] = _array(archive.read(member), f"{path}: the array {shown(name)}")
            return arrays
    except (*UNREADABLE, NotImplementedError) as error:
        raise broken_file(path, _NPZ, f"it is damaged, or no {_NPZ}") from error


def _array(content: bytes, where: str) -> Tensor:
    """The tensor of an .npy file."""
    file = io.BytesIO(content)
    version = npy.read_magic(file)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise ExportError(f"{where} has version {version[0]}.{version[1]} of NumPy's format, and 1.0 and 2.0 are read")
    shape, fortran_order, dtype = read(file, max_header_size=_LONGEST_HEADER)
    if dtype.hasobject or dtype.str not in _TYPES:
        raise ExportError(
            f"{where} holds {shown(dtype.str)}, and only numbers of float32, float16 and float64 are read"
        )
    if fortran_order or len(shape) > _MOST_DIMENSIONS:
        raise ExportError(f"{where} is stored by columns or has more than {_MOST_DIMENSIONS} dimensions")
    start, size = file.tell(), math.prod(shape)
    if size * dtype.itemsize != len(content) - start:
        raise ExportError(f"{where} is {list(shape)}, and has {len(content) - start:,} bytes")
    numbers = np.frombuffer(content, dtype, size, start).reshape(shape)
    return torch.from_numpy(numbers.copy())  # aligned, and writable
