//! The routes in force, and what they say of the turns that are left to them.
//!
//! Owns the time of day they go by, and that a long prompt holds up nobody but its sender: they are
//! asked beside the owner. Must not know which agents there are.

use std::cell::OnceCell;
use std::sync::{Arc, PoisonError, RwLock};

use agentd_core::event::{Directory, RequestContext, Routing};
use agentd_protocol::request::Send;
use agentd_protocol::request_table::RequestKind;
use agentd_protocol::routed::AUTO;
use agentd_protocol::{Request, attachment};
use agentd_route::{Asked, Facts, Rule, weigh};

use crate::config::Config;

/// A prompt up to this size is looked at where its connection is served: that takes less than to
/// start a thread for it.
const AT_ONCE: usize = 64 * 1024;

/// What a decision tells besides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Explains {
    /// What a rule asked for.
    Asked,
    /// The class and the difficulty of the prompt in any case.
    All,
}

/// What the configuration says.
#[derive(Default)]
struct InForce {
    rules: Arc<[Rule]>,
    /// Is a turn left to them that names nobody?
    by_default: bool,
    home: String,
}

/// The routes in force.
#[derive(Default)]
pub struct Routes(RwLock<InForce>);

impl Routes {
    /// Of a configuration.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self(RwLock::new(InForce::of(config)))
    }

    /// Another configuration counts from now on.
    pub fn take(&self, config: &Config) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = InForce::of(config);
    }

    /// Has a request a turn that is left to them?
    #[must_use]
    pub fn are_asked(&self, request: &Request) -> bool {
        let in_force = self.0.read().unwrap_or_else(PoisonError::into_inner);
        // Most are no turns, and of most configurations no turn is left to rules.
        !in_force.rules.is_empty()
            && request
                .turns()
                .iter()
                .any(|send| in_force.asked(send, request.kind()).is_some())
    }

    /// Says of each turn of a request what the rules say of it.
    pub async fn weigh(
        self: &Arc<Self>,
        request: Request,
        mut facts: Box<RequestContext>,
    ) -> (Request, Box<RequestContext>) {
        if !self.are_asked(&request) {
            return (request, facts);
        }
        let bytes: usize = request.turns().iter().map(|send| send.text.len()).sum();
        if bytes <= AT_ONCE {
            facts.routing = self.routing(&request, &facts);
            return (request, facts);
        }
        let routes = Arc::clone(self);
        let request = Arc::new(request);
        let of_thread = Arc::clone(&request);
        let descent = facts.descent.clone();
        let weighing = tokio::task::spawn_blocking(move || {
            facts.routing = routes.routing(&of_thread, &facts);
            drop(of_thread);
            facts
        });
        // A thread that dies says nothing of its request, which is then as one without rules; where it
        // comes from counts all the same.
        let facts = weighing.await.unwrap_or_else(|_died| {
            Box::new(RequestContext {
                descent,
                ..RequestContext::default()
            })
        });
        (Arc::unwrap_or_clone(request), facts)
    }

    fn routing(&self, request: &Request, facts: &RequestContext) -> Vec<Routing> {
        let in_force = {
            let in_force = self.0.read().unwrap_or_else(PoisonError::into_inner);
            InForce {
                rules: Arc::clone(&in_force.rules),
                home: in_force.home.clone(),
                ..*in_force
            }
        };
        let minute = minute();
        let explains = match request {
            Request::Route(_) => Explains::All,
            _ => Explains::Asked,
        };
        let turns = request.turns().into_iter();
        let of_turn = |send: &Send| match in_force.asked(send, request.kind()) {
            Some(asked) => in_force.weigh(send, (asked, explains), minute, facts),
            None => Routing::default(),
        };
        turns.map(of_turn).collect()
    }
}

impl InForce {
    fn of(config: &Config) -> Self {
        Self {
            rules: config.routes.as_slice().into(),
            by_default: config.default_agent.as_deref() == Some(AUTO),
            home: std::env::var("HOME").unwrap_or_default(),
        }
    }

    /// Who left a turn to them? The core decides by the same rule whether they count.
    fn asked(&self, send: &Send, kind: RequestKind) -> Option<Asked> {
        if send.provider.is_some() || send.model.is_some() {
            return None;
        }
        match send.agent.as_deref() {
            Some(AUTO) => Some(Asked::ByName),
            Some(_named) => None,
            None if self.by_default => Some(Asked::ByDefault),
            // It is asked what would become of it with `auto`.
            None => (kind == RequestKind::Route).then_some(Asked::ByName),
        }
    }

    fn weigh(
        &self,
        send: &Send,
        (asked, explains): (Asked, Explains),
        minute: u16,
        facts: &RequestContext,
    ) -> Routing {
        let given = send.cwd.as_ref().or(send.cwd_if_new.as_ref());
        let given = given.unwrap_or(&self.home);
        let real = match facts.directories.get(given) {
            Some(Directory::There(real)) => real.as_deref(),
            _ => None,
        };
        let types = send.attachments.iter();
        let types = types.map(|of| of.mime.as_deref().unwrap_or(attachment::TEXT));
        let facts = Facts {
            asked,
            text: &send.text,
            attachments: types.collect(),
            directories: [Some(given.as_str()), real].into_iter().flatten().collect(),
            labels: &send.labels,
            minute,
            classified: OnceCell::new(),
        };
        let weighed = weigh(&self.rules, &facts);
        if explains == Explains::All {
            let _looked_at = facts.classified();
        }
        let classified = facts.classified.get();
        Routing {
            weighed,
            classified: classified
                .map(|(class, difficulty)| (class.name().to_owned(), difficulty.name().to_owned())),
        }
    }
}

/// Minutes since midnight, on the clock of this place.
fn minute() -> u16 {
    let now = jiff::Zoned::now();
    let minute = i16::from(now.hour()) * 60 + i16::from(now.minute());
    u16::try_from(minute).unwrap_or(0)
}
