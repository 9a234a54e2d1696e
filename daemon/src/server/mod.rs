//! Connections: from a listening socket to requests in the owner's inbox, and lines back.

pub mod alias;
pub mod listen;
pub mod peer;
