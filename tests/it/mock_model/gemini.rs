//! Google's generateContent, streamed: as much as agents need.
