"""Arrays of any kind as NumPy arrays, without a copy where the type of the elements allows it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._errors import DataError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def view(found: Any) -> Array:
    """An array of a dataset as a NumPy array, which keeps the dataset and cannot be written."""
    return np.asarray(found)


class Sparse(NamedTuple):
    """Rows in CSR form: those of row `i` are `indices[indptr[i]:indptr[i + 1]]`."""

    shape: tuple[int, int]
    indptr: Array
    indices: Array
    data: Floats


def numpy_of(value: Any, key: str) -> Array:
    """Anything that holds numbers as an array: NumPy, torch and other libraries with DLPack, columns, lists."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):
        # A tensor of torch; NumPy shares the memory of those of the processor.
        try:
            return np.asarray(value.detach().cpu().numpy())
        except TypeError:
            if "strided" not in str(getattr(value, "layout", "")):
                raise DataError(f"`{key}` is sparse, and only features may be: `.to_dense()` makes an array") from None
            raise DataError(f"`{key}` is {value.dtype}, which NumPy has not: convert it with `.float()`") from None
    if hasattr(value, "to_numpy"):
        return np.asarray(value.to_numpy())
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    array = np.asarray(value)
    if array.dtype == object:
        raise DataError(f"`{key}`: a {type(value).__name__} is no array of numbers")
    return array


def floats(value: Any, key: str, ndim: int) -> Floats:
    """Values of type float32, not copied unless they are not contiguous."""
    array = numpy_of(value, key)
    if array.dtype != np.float32:
        raise DataError(
            f"`{key}` is {array.dtype}, and features and weights are float32: convert it first, "
            "with `.astype('float32')` or `.float()`, which is a copy"
        )
    if array.ndim != ndim:
        shape = "one number per row" if ndim == 1 else "[rows, features]; `x.reshape(-1, 1)` makes a column"
        raise DataError(f"`{key}` has shape {list(array.shape)}, and should have {shape}")
    return np.require(array, np.float32, ["C", "A"])


def ints(value: Any, key: str, ndim: int = 1) -> Ints:
    """Whole numbers as int64."""
    array = numpy_of(value, key)
    if array.size == 0 and array.ndim == ndim:
        array = array.astype(np.int64)
    if array.dtype.kind == "b":
        raise DataError(f"`{key}` is a mask, and should be whole numbers: `numpy.flatnonzero` makes ids of it")
    if array.dtype.kind not in "iu":
        raise DataError(f"`{key}` is {array.dtype}, and should be whole numbers")
    if array.ndim != ndim:
        raise DataError(f"`{key}` has shape {list(array.shape)}, and should have {ndim} axes")
    if array.dtype.kind == "u" and array.size and int(array.max()) >= 1 << 63:
        raise DataError(f"`{key}`: {int(array.max())} is too large: whole numbers are less than 2^63")
    return np.ascontiguousarray(array, dtype=np.int64)


def edge_index(value: Any, key: str) -> tuple[Ints, Ints]:
    """Sources and destinations: an array [2, edges], or a pair of arrays."""
    if isinstance(value, (tuple, list)) and len(value) == 2 and not np.isscalar(value[0]):
        src, dst = ints(value[0], f"{key}[0]"), ints(value[1], f"{key}[1]")
        if len(src) != len(dst):
            raise DataError(f"`{key}` has {len(src)} sources and {len(dst)} destinations: an edge has one of each")
        return src, dst
    array = ints(value, key, 2)
    if array.shape[0] != 2:
        turned = "; this one is [edges, 2]: give its transpose" if array.shape[1] == 2 else ""
        raise DataError(f"`{key}` has shape {list(array.shape)}, and edges are [2, edges], sources above destinations{turned}")
    return array[0], array[1]


def features(value: Any, key: str) -> Floats | Sparse:
    """Feature rows, dense or sparse (of SciPy, torch or torch_sparse)."""
    parts: tuple[Any, Any, Any] | None = None
    if isinstance(value, Sparse):
        parts = (value.indptr, value.indices, value.data)
    elif "sparse" in str(getattr(value, "layout", "")):
        rows = value.to_sparse_csr() if hasattr(value, "to_sparse_csr") else value
        parts = (rows.crow_indices(), rows.col_indices(), rows.values())
    elif hasattr(value, "tocsr"):
        rows = value.tocsr()
        parts = (rows.indptr, rows.indices, rows.data)
    elif hasattr(value, "csr") and hasattr(value, "sparse_sizes"):
        parts = value.csr()
    if parts is None:
        return floats(value, key, 2)
    shape = tuple(value.sparse_sizes() if hasattr(value, "sparse_sizes") else value.shape)
    if parts[2] is None:
        parts = (parts[0], parts[1], np.ones(len(parts[1]), np.float32))
    indptr, indices = ints(parts[0], f"{key}, row offsets"), ints(parts[1], f"{key}, columns")
    return Sparse((int(shape[0]), int(shape[1])), indptr, indices, floats(parts[2], key, 1))


def missing(value: Any) -> bool:
    """Whether it stands for no value: None, NaN, and what pandas has for it."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # `pandas.NA` is neither true nor false
        return True


def column(value: Any) -> Array:
    """Values of any kind. NumPy makes texts of all values of a list with a text, and floats of large whole numbers."""
    if hasattr(value, "detach"):
        return numpy_of(value, "ids")
    array = np.asarray(value.to_numpy() if hasattr(value, "to_numpy") else value)
    if isinstance(value, (list, tuple)) and array.ndim == 1:
        texts = array.dtype.kind in "SU" and len({type(one) for one in value}) > 1
        whole = array.dtype.kind == "f" and all(isinstance(one, int) or missing(one) for one in value)
        if texts or (whole and any(isinstance(one, int) and abs(one) >= 1 << 53 for one in value)):
            return np.array(value, dtype=object)
    return array


def ids(value: Any, key: str) -> Ints | list[str]:
    """Ids of vertices: whole numbers or texts."""
    array = column(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuOUS"):
        raise DataError(f"`{key}`: ids are whole numbers or texts, one of each vertex")
    if array.dtype.kind in "iu" or not array.size:
        return ints(array, key)
    found = array.tolist()
    for row, one in enumerate(found):
        if missing(one):
            raise DataError(f"`{key}`, row {row}: there is no id")
    if all(isinstance(one, (int, np.integer)) for one in found):
        for row, one in enumerate(found):
            if not -(1 << 63) <= one < 1 << 63:
                raise DataError(f"`{key}`, row {row}: {one} is no whole number of 64 bits: make texts of the ids")
        return np.asarray(found, np.int64)
    try:
        return [one.decode() if isinstance(one, bytes) else str(one) for one in found]
    except UnicodeDecodeError as error:
        raise DataError(f"`{key}`: {error.object!r} is not UTF-8") from error
