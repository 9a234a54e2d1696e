//! Codex.
