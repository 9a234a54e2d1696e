//! What the driver does for a wire that has nothing of its own but what it must have.

use agentd_core::worker::Steering;
use serde_json::json;

use super::*;
use crate::adapter::testing::{cancel, compact, prompt, steer};

/// Each line is a word; each command is written as one.
#[derive(Default, Debug)]
struct Plain {
    driver: Driver<Self>,
    /// Does the agent take prompts?
    closed: bool,
    /// Does it take steers and compact?
    able: bool,
}

#[derive(Debug)]
struct Turn(TurnState);

impl InFlight for Turn {
    fn state(&self) -> &TurnState {
        &self.0
    }

    fn state_mut(&mut self) -> &mut TurnState {
        &mut self.0
    }
}

impl Wire for Plain {
    type Turn = Turn;
    type Compaction = ();

    const NAME: &'static str = "it";

    has_driver!();

    fn line(&mut self, bytes: &[u8], _out: &mut Out<'_>) {
        match bytes {
            b"begun" => self.driver.state().unwrap().begun = true,
            b"over" => self.driver.turn = None,
            _ => self.closed = !self.closed,
        }
    }

    fn too_long(&self, _beginning: &[u8]) -> Option<Value> {
        None
    }

    fn probe(&mut self, out: &mut Out<'_>) {
        out.put(&json!("probe"));
    }

    fn answer(&mut self, question: &str, _reply: &Reply, out: &mut Out<'_>) {
        out.put(&json!(question));
    }

    fn is_free(&mut self, _out: &mut Out<'_>) -> bool {
        !self.closed
    }

    fn begin(&mut self, prompt: &Prompt, out: &mut Out<'_>) -> Begin<Turn> {
        out.put(&json!(prompt.text));
        Begin::Begun(Turn(TurnState::new(prompt.turn)))
    }

    fn put_models(&mut self, number: u64, pins: &Pins, out: &mut Out<'_>) {
        out.put(&json!(["models", number, pins.model]));
    }

    fn put_abort(&mut self, out: &mut Out<'_>) {
        out.put(&json!("abort"));
    }

    fn put_steer(&mut self, steer: u64, text: &str, out: &mut Out<'_>) -> Result<String, Failure> {
        if !self.able {
            return Err(Failure::new(Code::Unsupported, "no"));
        }
        out.put(&json!(text));
        Ok(format!("w{steer}"))
    }

    fn put_compact(&mut self, _: Option<&str>, out: &mut Out<'_>) -> Result<(), Failure> {
        out.put(&json!("compact"));
        Ok(())
    }
}

/// What was told and written of these commands; a text is a line of the agent's.
fn talk(wire: &mut Plain, said: &[Result<WorkerCommand, &str>]) -> (Vec<WorkerEvent>, String) {
    let (mut events, mut write) = (Vec::new(), Vec::new());
    for said in said {
        match said {
            Ok(command) => wire.encode(command, &mut events, &mut write),
            Err(line) => wire.decode(line.as_bytes(), &mut events, &mut write),
        }
    }
    let wrote = String::from_utf8(write).unwrap().replace('\n', " ");
    (events, wrote.replace('"', "").trim_end().to_owned())
}

#[test]
fn driver_holds_one_prompt_and_refuses_a_second() {
    let mut wire = Plain::default();
    let prompts = [1, 2, 3].map(|turn| Ok(prompt(turn, &format!("p{turn}"))));
    let (events, wrote) = talk(&mut wire, &prompts);
    assert_eq!(wrote, "p1");
    let [WorkerEvent::Ended { turn, outcome }] = &events[..] else {
        panic!("{events:?}");
    };
    let failure = outcome.result.as_ref().unwrap_err();
    assert_eq!((*turn, failure.code), (TurnId(3), Code::Internal));
    assert_eq!(talk(&mut wire, &[Err("over")]).1, "p2");
}

#[test]
fn driver_writes_prompts_when_the_agent_is_free() {
    let mut wire = Plain::default();
    let said = [Err("closed"), Ok(prompt(1, "p1"))];
    assert_eq!(talk(&mut wire, &said).1, "");
    assert_eq!(talk(&mut wire, &[Err("open")]).1, "p1");
}

#[test]
fn driver_ends_a_cancelled_prompt_that_waits() {
    let mut wire = Plain::default();
    let said = [Err("closed"), Ok(prompt(1, "p1")), Ok(steer(7, "w"))];
    talk(&mut wire, &said);
    let (events, wrote) = talk(&mut wire, &[Ok(cancel(1)), Err("open")]);
    assert_eq!(wrote, "");
    let late = SteerQueue::too_late(7);
    let end = ended(TurnId(1), Outcome::ended(Stop::Cancelled));
    assert_eq!(events, [late, end]);
}

#[test]
fn driver_keeps_abort_and_words_until_the_run() {
    let mut wire = Plain {
        able: true,
        ..Plain::default()
    };
    let said = [Ok(prompt(1, "p1")), Ok(steer(1, "one"))];
    assert_eq!(talk(&mut wire, &said).1, "p1");
    assert_eq!(talk(&mut wire, &[Err("begun")]).1, "one");
    let said = [Ok(cancel(1)), Ok(cancel(1)), Ok(steer(2, "two"))];
    assert_eq!(talk(&mut wire, &said).1, "abort");
    let mut wire = Plain::default();
    let said = [Ok(prompt(1, "p1")), Ok(cancel(1)), Err("begun")];
    assert_eq!(talk(&mut wire, &said).1, "p1 abort");
}

#[test]
fn driver_answers_a_word_that_nobody_takes() {
    let mut wire = Plain::default();
    let said = [
        Ok(steer(1, "x")),
        Ok(prompt(1, "p1")),
        Err("begun"),
        Ok(steer(2, "y")),
    ];
    let (events, wrote) = talk(&mut wire, &said);
    assert_eq!((events.len(), wrote.as_str()), (2, "p1"));
    assert_eq!(events[0], SteerQueue::too_late(1));
    let refused = |event: &WorkerEvent| {
        matches!(
            event,
            WorkerEvent::Steered {
                steer: 2,
                steering: Steering::Refused(_)
            }
        )
    };
    assert!(refused(&events[1]), "{events:?}");
}

#[test]
fn driver_compacts_only_between_turns_and_once() {
    let mut wire = Plain::default();
    let said = [
        Ok(compact(None)),
        Ok(compact(None)),
        Ok(prompt(1, "p1")),
        Ok(compact(None)),
    ];
    let (events, wrote) = talk(&mut wire, &said);
    assert_eq!(wrote, "compact p1");
    let busy = |event: &WorkerEvent| matches!(event, WorkerEvent::Compacted { result: Err(why) } if why.code == Code::SessionBusy);
    assert!(events.len() == 2 && events.iter().all(busy), "{events:?}");
}
