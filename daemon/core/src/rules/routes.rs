//! Who answers a turn that leaves it to the routes: the first rule that holds and can be used.
//!
//! Owns which sends the routes are for, what becomes of a rule whose agent can't be used, and what is
//! told of the decision. Whether a rule holds, the shell has found out.

use std::sync::Arc;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Line;
use agentd_protocol::request::{Decoded, Ignored, Send};
use agentd_protocol::routed::{AUTO, Considered, RouteAnswer, RouteUse, Routed};
use agentd_protocol::{Code, Id, Request};

use crate::event::{RequestContext, Routing};
use crate::ids::{ConnId, SessionId};
use crate::state::State;

/// An agent, and why it is that one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) agent: String,
    pub(crate) routed: Routed,
    pub(crate) uses: Arc<RouteUse>,
}

impl Route {
    /// A session's own, or the usual one: no rule decided.
    fn plain(agent: String, because: String, considered: Vec<Considered>) -> Self {
        Self {
            agent,
            routed: Routed {
                because,
                considered,
                ..Routed::default()
            },
            uses: Arc::default(),
        }
    }

    /// Puts in force what the rule says, where the send says nothing itself.
    pub(crate) fn complete(&self, send: &mut Send) {
        let RouteUse {
            agent: _,
            provider,
            model,
            thinking,
            toolsets,
            timeout,
            fallback_chain,
        } = &*self.uses;
        let fill = |given: &mut Option<String>, rule: &Option<String>| {
            if given.is_none() {
                given.clone_from(rule);
            }
        };
        fill(&mut send.provider, provider);
        fill(&mut send.model, model);
        fill(&mut send.thinking, thinking);
        send.agent = Some(self.agent.clone());
        send.toolsets = send.toolsets.take().or_else(|| toolsets.clone());
        #[expect(clippy::cast_precision_loss, reason = "seconds of a turn")]
        let seconds = timeout.map(|seconds| seconds as f64);
        send.timeout = send.timeout.or(seconds);
        let chain = send.fallback_chain.take();
        send.fallback_chain = chain.or_else(|| fallback_chain.clone());
    }

    /// What is kept of the decision.
    pub(crate) fn kept(&self) -> Box<Routed> {
        Box::new(self.routed.clone().kept())
    }
}

impl State {
    /// Does a send leave its agent to the routes?
    pub(crate) fn is_routed(&self, send: &Send) -> bool {
        match send.agent.as_deref() {
            Some(agent) => agent == AUTO,
            None => {
                let default = self.settings.default_agent.as_deref();
                default == Some(AUTO) && send.provider.is_none() && send.model.is_none()
            }
        }
    }

    /// The agent of a new session by the routes. Of a session that is there its own.
    pub(crate) fn route(
        &mut self,
        send: &Send,
        session: Option<SessionId>,
        routing: Option<&Routing>,
    ) -> Result<Route, Rejected> {
        if let Some(known) = session.and_then(|session| self.sessions.get(&session)) {
            let agent = known.agent.clone();
            let because = format!("the session `{}` has the agent `{agent}`", known.shown());
            return Ok(Route::plain(agent, because, Vec::new()));
        }
        if send.provider.is_some() || send.model.is_some() {
            let agent = self.default_agent(send.provider.as_ref(), send.model.as_ref())?;
            let because = "the send names its model, and routes are for those that don't";
            return Ok(Route::plain(agent, because.to_owned(), Vec::new()));
        }
        let mut passed = Vec::new();
        let mut refused = None;
        for weighed in routing.iter().flat_map(|routing| &routing.weighed) {
            let (rule, because) = (weighed.rule.clone(), weighed.because.clone());
            let Some(uses) = &weighed.uses else {
                passed.push(Considered { rule, because });
                continue;
            };
            match self.can_use(send, uses) {
                Ok(agent) => {
                    let routed = Routed {
                        rule: Some(rule),
                        because,
                        considered: passed,
                        ..classified(routing)
                    };
                    let uses = Arc::clone(uses);
                    return Ok(Route {
                        agent,
                        routed,
                        uses,
                    });
                }
                Err(rejected) => {
                    let because = format!("it holds, but {}", rejected.error);
                    refused.get_or_insert_with(|| format!("route `{rule}`: {}", rejected.error));
                    passed.push(Considered { rule, because });
                }
            }
        }
        let because = match (&refused, routing.is_some_and(|all| !all.weighed.is_empty())) {
            (Some(_), _) => {
                "no route that holds can be used: it goes where a send without an agent goes"
            }
            (None, true) => "no route holds: it goes where a send without an agent goes",
            (None, false) => "there are no routes: it goes where a send without an agent goes",
        };
        match self.default_agent(None, None) {
            Ok(agent) => {
                let mut route = Route::plain(agent, because.to_owned(), passed);
                let Routed {
                    class, difficulty, ..
                } = classified(routing);
                (route.routed.class, route.routed.difficulty) = (class, difficulty);
                Ok(route)
            }
            Err(rejected) => Err(Rejected {
                error: match refused {
                    Some(refused) => format!("{refused}; {}", rejected.error),
                    None => rejected.error,
                },
                ..rejected
            }),
        }
    }

    /// Who answers by what a rule says, if that can be done.
    fn can_use(&mut self, send: &Send, uses: &Arc<RouteUse>) -> Result<String, Rejected> {
        let agent = match &uses.agent {
            Some(agent) => agent.clone(),
            None => self.default_agent(uses.provider.as_ref(), uses.model.as_ref())?,
        };
        // All of the send that decides whether an agent can do it, without its text.
        let mut like = Send {
            thinking: send.thinking.clone(),
            toolsets: send.toolsets.clone(),
            fallback_chain: send.fallback_chain.clone(),
            mcp_servers: send.mcp_servers.clone(),
            attachments: send.attachments.clone(),
            ..Send::default()
        };
        let route = Route {
            agent,
            routed: Routed::default(),
            uses: Arc::clone(uses),
        };
        route.complete(&mut like);
        self.usable(&route.agent, None, &like)?;
        Ok(route.agent)
    }

    /// By which route a send goes, where it is left to them.
    pub(crate) fn routed(
        &mut self,
        send: &Send,
        session: Option<SessionId>,
        routing: Option<&Routing>,
    ) -> Result<Option<Box<Route>>, Rejected> {
        if !self.is_routed(send) {
            return Ok(None);
        }
        let route = self.route(send, session, routing)?;
        Ok(Some(Box::new(route)))
    }

    /// `route`, when its session is known, or known not to exist.
    pub(crate) fn route_requested(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        send: Box<Send>,
        ignored: Vec<Ignored>,
        facts: &RequestContext,
    ) {
        let unknown = |name: &&String| !self.sessions.knows(name);
        let Some(name) = send.session.as_ref().filter(unknown).cloned() else {
            return self.explain_route(conn, id, &send, facts);
        };
        let decoded = Decoded {
            request: Request::Route(send),
            ignored,
        };
        self.park_until_loaded(name.clone(), vec![name], conn, id, decoded, facts);
    }

    /// What would become of a send, of which nothing is run or kept.
    pub(crate) fn explain_route(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        send: &Send,
        facts: &RequestContext,
    ) {
        let session = send.session.as_ref();
        let session = session.and_then(|name| self.sessions.named(name));
        let explained = match send.agent.as_deref().filter(|agent| *agent != AUTO) {
            Some(agent) => {
                let error = format!("the send names the agent `{agent}`, so no route is asked");
                Err(Rejected::new(Code::InvalidRequest, error).hint("leave `agent` out"))
            }
            None => self.route(send, session, facts.routing.first()),
        };
        match explained {
            Ok(route) => {
                let answer = RouteAnswer {
                    ok: true,
                    agent: route.agent,
                    routed: route.routed,
                    uses: Arc::unwrap_or_clone(route.uses),
                };
                self.answer(conn, id, &Line::Route(Box::new(answer)));
            }
            Err(rejected) => self.refuse(conn, id, rejected),
        }
    }
}

/// What the prompt was found to be.
fn classified(routing: Option<&Routing>) -> Routed {
    let (class, difficulty) = routing
        .and_then(|routing| routing.classified.clone())
        .unzip();
    Routed {
        class,
        difficulty,
        ..Routed::default()
    }
}
