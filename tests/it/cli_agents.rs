//! `agentctl agents`: what is there, what can be added, and whether it answers.
