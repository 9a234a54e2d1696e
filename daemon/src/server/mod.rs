//! The daemon as a whole: connections, the owner of the core, and the order of coming up and going
//! down.

pub mod alias;
mod attach;
pub mod boot_timer;
mod copied;
pub mod daemon;
pub mod dead_instances;
pub mod doctor;
pub mod facts;
pub mod heartbeat;
pub mod listen;
pub mod live;
mod lock_words;
mod logged;
pub mod oneshot;
pub mod owner;
pub mod peer;
pub mod plain_send;
pub mod predecessors;
pub mod restore;
pub mod routes;
pub mod runtime;
mod scheduled;
mod slow_start;
mod stdio;
mod to_store;
