//! Names, types, spaces and shapes; elaboration of a model into the dataflow IR.
