//! What pi is about, and how much it tells of that.
//!
//! Owns both states and what moves them. Must not know pi's records, nor the turn in flight.

/// What this pi tells, each more than the one before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) enum Dialect {
    /// The end of a run, behind which it may go on.
    #[default]
    Old,
    /// That it settled, too.
    Settles,
    /// What becomes of a prompt, too. Such a one's setters are the session's.
    Disposes,
}

/// A run, from `agent_start` to a confirmed idle state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Run {
    #[default]
    None,
    /// There is none, and pi announced another attempt: of one that was taken for over.
    Announced,
    Going,
    /// pi announced another attempt by itself.
    Retrying,
}

/// What pi is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Activity {
    Run(Run),
    /// It shortens its context; this is behind it.
    Compacting(Run),
}

impl Default for Activity {
    fn default() -> Self {
        Self::Run(Run::None)
    }
}

impl Activity {
    pub(super) const fn run(self) -> Run {
        match self {
            Self::Run(run) | Self::Compacting(run) => run,
        }
    }

    pub(super) const fn is_idle(self) -> bool {
        matches!(self, Self::Run(Run::None | Run::Announced))
    }

    pub(super) const fn is_compacting(self) -> bool {
        matches!(self, Self::Compacting(_))
    }

    /// Will it go on by itself, whatever its state looks like?
    pub(super) const fn goes_on(self) -> bool {
        self.is_compacting() || matches!(self.run(), Run::Announced | Run::Retrying)
    }

    /// The run begins, or is over.
    pub(super) fn run_is(&mut self, run: Run) {
        *self = match self {
            Self::Run(_) => Self::Run(run),
            Self::Compacting(_) => Self::Compacting(run),
        };
    }

    pub(super) fn retries(&mut self) {
        match self.run() {
            Run::None | Run::Announced => self.run_is(Run::Announced),
            Run::Going | Run::Retrying => self.run_is(Run::Retrying),
        }
    }

    /// No other attempt comes.
    pub(super) fn retries_no_more(&mut self) {
        match self.run() {
            Run::None | Run::Announced => self.run_is(Run::None),
            Run::Going | Run::Retrying => self.run_is(Run::Going),
        }
    }

    pub(super) fn compacts(&mut self) {
        *self = Self::Compacting(self.run());
    }

    pub(super) fn compacts_no_more(&mut self) {
        *self = Self::Run(self.run());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activity_keeps_its_run_while_pi_compacts() {
        for run in [Run::None, Run::Announced, Run::Going, Run::Retrying] {
            let mut activity = Activity::Run(run);
            activity.compacts();
            assert!(activity.is_compacting() && activity.goes_on() && !activity.is_idle());
            activity.compacts_no_more();
            assert_eq!(activity, Activity::Run(run));
            activity.retries();
            assert!(activity.goes_on());
            activity.retries_no_more();
            let runs = matches!(run, Run::Going | Run::Retrying);
            assert_eq!((activity.is_idle(), activity.goes_on()), (!runs, false));
        }
    }

    #[test]
    fn activity_without_another_attempt_is_still_a_run() {
        let mut activity = Activity::Compacting(Run::Retrying);
        activity.retries_no_more();
        assert_eq!(activity, Activity::Compacting(Run::Going));
        let mut idle = Activity::default();
        idle.retries_no_more();
        assert!(idle.is_idle());
    }
}
