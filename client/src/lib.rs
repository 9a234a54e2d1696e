//! Client library of agentd.
