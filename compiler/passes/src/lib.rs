//! Differentiation, optimisers and the passes over the dataflow IR.
