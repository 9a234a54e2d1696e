//! OpenAI's responses, streamed: as much as agents need.
