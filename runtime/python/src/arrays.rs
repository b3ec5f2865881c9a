//! Arrays between NumPy and datasets, without a copy in either direction.

use std::ptr::NonNull;
use std::sync::Arc;

use hgnnc_dataset::{Dataset, FloatArray};
use numpy::{Element, PyArray, PyArrayMethods, PyReadonlyArray};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The values of a contiguous NumPy array, which it keeps alive.
struct NumpyFloats {
    values: NonNull<f32>,
    len: usize,
    _array: Py<PyAny>,
}

// SAFETY: the pointer is only read. The values are those of an array that `_array` keeps; NumPy does not move or free
// the data of an array that is referred to. A concurrent change by other Python code gives wrong numbers, as with files
// that are mapped, and every bit pattern is a valid `f32`.
#[allow(unsafe_code)]
unsafe impl Send for NumpyFloats {}
// SAFETY: as above; there is no interior mutability.
#[allow(unsafe_code)]
unsafe impl Sync for NumpyFloats {}

impl AsRef<[f32]> for NumpyFloats {
    fn as_ref(&self) -> &[f32] {
        // SAFETY: pointer and length are those of a contiguous, aligned array (`shared` has checked it), which lives as
        // long as `self`.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.values.as_ptr(), self.len)
        }
    }
}

/// The values of a C-contiguous array, row-major, without a copy.
pub fn shared<D: numpy::ndarray::Dimension>(array: &Bound<'_, PyArray<f32, D>>) -> PyResult<FloatArray> {
    let view = array.try_readonly()?;
    let values = view.as_slice().map_err(|_| PyValueError::new_err("internal error: an array is not contiguous"))?;
    let (values, len) = (NonNull::from(values).cast(), values.len());
    Ok(FloatArray::shared(Arc::new(NumpyFloats { values, len, _array: array.clone().into_any().unbind() })))
}

/// The elements of a contiguous array.
pub fn slice<'a, T: Element, D: numpy::ndarray::Dimension>(array: &'a PyReadonlyArray<'_, T, D>) -> PyResult<&'a [T]> {
    array.as_slice().map_err(|_| PyValueError::new_err("internal error: an array is not contiguous"))
}

/// An array of a dataset, which it keeps alive; `numpy.asarray` makes a read-only array of it.
#[pyclass(frozen)]
pub struct View {
    _owner: Arc<Dataset>,
    address: usize,
    shape: Vec<usize>,
    typestr: &'static str,
}

/// Types of elements that views have.
pub trait Viewed {
    /// In the array interface of NumPy.
    const TYPESTR: &'static str;
}

macro_rules! viewed {
    ($($ty:ty => $typestr:literal),*) => {$(
        impl Viewed for $ty {
            const TYPESTR: &'static str = $typestr;
        }
    )*};
}
viewed!(f32 => "<f4", i32 => "<i4", u32 => "<u4", i64 => "<i8", u64 => "<u8", bool => "|b1");

impl View {
    /// A view of values that belong to `owner`, whose arrays do not change.
    pub fn new<T: Viewed>(owner: &Arc<Dataset>, values: &[T], shape: &[usize]) -> View {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        let address = values.as_ptr() as usize;
        View { _owner: Arc::clone(owner), address, shape: shape.to_vec(), typestr: T::TYPESTR }
    }
}

#[pymethods]
impl View {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.typestr)?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        interface.set_item("data", (self.address, true))?;
        Ok(interface)
    }
}
