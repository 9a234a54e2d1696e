//! Stories of subscribers with cursors.
