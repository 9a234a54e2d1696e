//! Agents that speak ACP.
