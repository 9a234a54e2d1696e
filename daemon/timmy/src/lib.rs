//! timmy.
