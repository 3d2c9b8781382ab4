//! Statistics against independent references.

mod against_references;
mod against_scipy;
