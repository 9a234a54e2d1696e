//! Another model, thinking level or permission mode for the open session.
//!
//! Owns what the process has, as far as it was asked for, and what is asked of it between turns.
//! What it has by a variable only it keeps until it ends: the platform, and thinking that is off.

use agentd_core::effect::Spawn;
use agentd_core::store::Pins;
use agentd_core::worker::WorkerEvent;
use agentd_protocol::models::ModeRow;
use serde_json::json;

use super::{Claude, effort};
use crate::adapter::driver::Out;

/// Levels that are variables, and no effort.
const OFF: &[&str] = &["off", "none"];

#[derive(Debug)]
pub(super) struct Switch {
    has: Pins,
    /// What it has once all requests are answered well.
    then: Pins,
    /// The requests that are out.
    open: Vec<String>,
}

impl Switch {
    pub(super) fn new(spawn: &Spawn) -> Self {
        let has = spawn.pins();
        Self {
            then: has.clone(),
            has,
            open: Vec::new(),
        }
    }

    /// Takes the answer to one of its requests. Whether all is well, when that is known.
    pub(super) fn answered(&mut self, id: Option<&str>, is_well: bool) -> Option<bool> {
        let at = self
            .open
            .iter()
            .position(|open| Some(open.as_str()) == id)?;
        self.open.swap_remove(at);
        if !is_well {
            self.open.clear();
            return Some(false);
        }
        if self.open.is_empty() {
            self.has = self.then.clone();
            return Some(true);
        }
        None
    }
}

impl Claude {
    /// Begins to ask for them.
    pub(super) fn switch_to(&mut self, pins: &Pins, out: &mut Out<'_>) {
        let has = self.switch.has.clone();
        let is_off = |level: &Option<String>| level.as_deref().is_some_and(|it| OFF.contains(&it));
        let level = (pins.thinking != has.thinking).then_some(&pins.thinking);
        let variable = |level| is_off(level) || is_off(&has.thinking) || level.is_none();
        let model = (pins.model != has.model).then_some(&pins.model);
        let mode = (pins.mode != has.mode).then_some(&pins.mode);
        if self.driver.turn.is_some()
            || pins.provider != has.provider
            || model.is_some_and(Option::is_none)
            || level.is_some_and(variable)
            || mode.is_some_and(Option::is_none)
        {
            return out.push(WorkerEvent::Switched(false));
        }
        self.switch.then = pins.clone();
        if let Some(model) = model {
            let id = self.request(json!({"model": model}), "set_model", out);
            self.switch.open.push(id);
        }
        if let Some(Some(level)) = level {
            let settings = json!({"settings": {"effortLevel": effort(level)}});
            let id = self.request(settings, "apply_flag_settings", out);
            self.switch.open.push(id);
        }
        if let Some(Some(mode)) = mode {
            self.mode = Some(mode.clone());
            let id = self.request(json!({"mode": mode}), "set_permission_mode", out);
            self.switch.open.push(id);
        }
        if self.switch.open.is_empty() {
            out.push(WorkerEvent::Switched(true));
        }
    }

    /// It says in which mode it works. One that was not asked for here is its own doing, or that of
    /// whoever took its plan.
    pub(super) fn works_in(&mut self, mode: Option<String>, out: &mut Out<'_>) {
        let Some(mode) = mode else { return };
        let before = self.mode.replace(mode.clone());
        match before {
            None => self.usual_mode = Some(mode),
            Some(before) if before != mode && self.switch.open.is_empty() => {
                self.switch.has.mode = Some(mode.clone());
                if let Some(turn) = &self.driver.turn {
                    out.mode_taken(turn.state.id, &mode);
                }
                out.push(WorkerEvent::ModeChanged {
                    mode: ModeRow::named(mode),
                });
            }
            Some(_) => {}
        }
    }
}
