//! What the translator does with every word, without an agent.
