//! timmy's own household: this machine's providers, prices, tools and settings.
//!
//! Owns how the parts find each other. Everything is made when it is first needed: who only says
//! the prompt back loads none of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;

use crate::failover::Class;
use crate::model::{Boxed, Failure, ModelClient, Usage};
use crate::provider::Target;
use crate::send::{Household, Wish};
use crate::tool::Tool;
use crate::turn::report::{Cost, Sure};
use crate::turn::{House, Plan};

/// This machine.
#[derive(Debug)]
pub(crate) struct Machine {
    own: PathBuf,
}
