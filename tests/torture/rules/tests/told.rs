//! Recordings that break the rule about webhooks.

use super::*;
use crate::history::Told;

/// The same with a callback of the first job, which was told twice.
fn told() -> History {
    let mut history = sound();
    let job = &mut history.jobs[0];
    job.request = job
        .request
        .replacen('{', r#"{"callback":{"url":"http://x/"},"#, 1);
    let told = Told {
        id: "evt_1".to_owned(),
        job: "j1".to_owned(),
        state: "completed".to_owned(),
        seq: 4,
    };
    history.told = vec![told.clone(), told];
    history
}

#[test]
fn rule_sees_an_end_told_wrong_or_never() {
    let rule = "an end is told, under one id";
    assert!(broken(&told()).is_empty());
    let breaks: [fn(&mut History); 6] = [
        |history| history.told.clear(),
        |history| history.told[1].id = "evt_2".to_owned(),
        |history| history.told[0].seq = 3,
        |history| history.told[0].state = "failed".to_owned(),
        |history| history.told[0].job = "j2".to_owned(),
        |history| history.jobs[0].request = "{}".to_owned(),
    ];
    for wrong in breaks {
        let mut history = told();
        wrong(&mut history);
        assert!(broken(&history).contains(&rule), "{:?}", history.told);
    }
}
