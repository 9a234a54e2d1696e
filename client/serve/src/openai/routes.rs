//! The routes, each once: the router and the document are made of them.
//!
//! Owns that list. Must not know how a request is answered.

use std::sync::Arc;

use axum::Router;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::{chat, models, read_again, responses, run_events, runs};
use crate::app::App;

/// What can be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    Models,
    Model,
    Chat,
    Respond,
    Response,
    DeleteResponse,
    InputItems,
    CancelResponse,
    MakeConversation,
    Conversation,
    StartRun,
    Run,
    RunEvents,
    ApproveRun,
    StopRun,
    Capabilities,
}

impl Route {
    pub(super) const ALL: [Self; 16] = [
        Self::Models,
        Self::Model,
        Self::Chat,
        Self::Respond,
        Self::Response,
        Self::DeleteResponse,
        Self::InputItems,
        Self::CancelResponse,
        Self::MakeConversation,
        Self::Conversation,
        Self::StartRun,
        Self::Run,
        Self::RunEvents,
        Self::ApproveRun,
        Self::StopRun,
        Self::Capabilities,
    ];

    /// As the document has it.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Models => "/v1/models",
            Self::Model => "/v1/models/{id}",
            Self::Chat => "/v1/chat/completions",
            Self::Respond => "/v1/responses",
            Self::Response | Self::DeleteResponse => "/v1/responses/{id}",
            Self::InputItems => "/v1/responses/{id}/input_items",
            Self::CancelResponse => "/v1/responses/{id}/cancel",
            Self::MakeConversation => "/v1/conversations",
            Self::Conversation => "/v1/conversations/{id}",
            Self::StartRun => "/v1/runs",
            Self::Run => "/v1/runs/{id}",
            Self::RunEvents => "/v1/runs/{id}/events",
            Self::ApproveRun => "/v1/runs/{id}/approval",
            Self::StopRun => "/v1/runs/{id}/stop",
            Self::Capabilities => "/v1/capabilities",
        }
    }

    pub(super) const fn method(self) -> Method {
        match self {
            Self::Chat
            | Self::Respond
            | Self::CancelResponse
            | Self::MakeConversation
            | Self::StartRun
            | Self::ApproveRun
            | Self::StopRun => Method::POST,
            Self::DeleteResponse => Method::DELETE,
            Self::Models
            | Self::Model
            | Self::Response
            | Self::InputItems
            | Self::Conversation
            | Self::Run
            | Self::RunEvents
            | Self::Capabilities => Method::GET,
        }
    }

    fn handler(self) -> MethodRouter<Arc<App>> {
        let method = match self.method() {
            Method::POST => MethodFilter::POST,
            Method::DELETE => MethodFilter::DELETE,
            _ => MethodFilter::GET,
        };
        match self {
            Self::Models => on(method, models::list),
            Self::Model => on(method, models::one),
            Self::Chat => on(method, chat::chat),
            Self::Respond => on(method, responses::create),
            Self::Response => on(method, read_again::one),
            Self::DeleteResponse => on(method, read_again::delete),
            Self::InputItems => on(method, read_again::input_items),
            Self::CancelResponse => on(method, read_again::cancel),
            Self::MakeConversation => on(method, responses::make_conversation),
            Self::Conversation => on(method, responses::one_conversation),
            Self::StartRun => on(method, runs::start),
            Self::Run => on(method, runs::one),
            Self::RunEvents => on(method, run_events::events),
            Self::ApproveRun => on(method, runs::approve),
            Self::StopRun => on(method, runs::stop),
            Self::Capabilities => on(method, runs::capabilities),
        }
    }
}

/// All of them.
pub(crate) fn router() -> Router<Arc<App>> {
    Route::ALL.into_iter().fold(Router::new(), |router, route| {
        let path = match route {
            // Their names have slashes in them.
            Route::Model => "/v1/models/{*id}",
            route => route.path(),
        };
        router.route(path, route.handler())
    })
}
