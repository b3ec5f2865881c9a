//! The native part of the Python package `hgnnc`: the library `hgnnc` on NumPy arrays. `py_src/hgnnc` has the classes
//! that users see; what is here takes arrays of the right types from them.

mod arrays;
mod dataset;
mod errors;
mod layer;
mod model;
mod work;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::arrays::View;
    #[pymodule_export]
    use crate::dataset::Dataset;
    #[pymodule_export]
    use crate::layer::Layer;
    #[pymodule_export]
    use crate::model::Model;
}
