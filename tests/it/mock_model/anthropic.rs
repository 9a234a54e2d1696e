//! Anthropic's messages, streamed: as much as agents need.
