//! Events go away by themselves, and nothing else does (AS-219).

mod common;

use std::{sync::Arc, time::Duration};

use apiserver::Environment;
use common::{Api, CONFIG_MAPS, config_map};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

const EVENTS: &str = "/api/v1/namespaces/default/events";
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A server whose clock is tokio's, which is paused, moved by what `shift` says.
async fn api(shift: &Arc<Mutex<i64>>) -> Api {
    Api::in_environment(environment(shift)).await
}

fn environment(shift: &Arc<Mutex<i64>>) -> Environment {
    let (shift, start) = (Arc::clone(shift), Instant::now());
    let random = Mutex::new(0u128);
    let now = move || {
        let seconds = 1_794_700_800 + start.elapsed().as_secs() as i64 + *shift.lock();
        Timestamp::from_second(seconds).expect("a time of this century")
    };
    Environment::new(now, move || {
        let mut random = random.lock();
        *random += 1;
        *random
    })
}

fn event(name: &str) -> Value {
    json!({"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "count": 1})
}

async fn names(api: &Api) -> Vec<String> {
    api.get(EVENTS).await.expect(200).names().into_iter().map(str::to_owned).collect()
}

/// Lets the server keep house for a while.
async fn pass(api: &Api, time: Duration) {
    assert!(tokio::time::timeout(time, api.server.expire_events()).await.is_err(), "it ended");
}

#[tokio::test(start_paused = true)]
async fn an_event_goes_an_hour_after_its_last_write_and_watchers_see_it() {
    let api = api(&Arc::default()).await;
    api.post(EVENTS, event("once")).await.expect(201);
    let last = api.post(EVENTS, event("again")).await.expect(201).version();
    api.post(CONFIG_MAPS, config_map("other", json!({}))).await.expect(201);
    pass(&api, 30 * MINUTE).await;
    let again = api.merge(&format!("{EVENTS}/again"), json!({"count": 2})).await.expect(200).version();
    pass(&api, 29 * MINUTE).await;
    assert_eq!(names(&api).await, ["again", "once"]);
    pass(&api, 2 * MINUTE).await;
    assert_eq!(names(&api).await, ["again"], "it was written half an hour ago");
    pass(&api, 30 * MINUTE).await;
    assert_eq!(names(&api).await, [""; 0]);

    let mut events = api.watch(&format!("{EVENTS}?watch=1&resourceVersion={again}&timeoutSeconds=60")).await;
    for name in ["once", "again"] {
        let (kind, seen, version) = events.summary().await.unwrap();
        assert_eq!((kind.as_str(), seen.as_str()), ("DELETED", name));
        assert!(version > again && again > last, "the version of the removal");
    }
    api.get(&format!("{CONFIG_MAPS}/other")).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn a_restart_neither_forgets_nor_renews_what_is_left_of_the_hour() {
    let shift = Arc::default();
    let api = api(&shift).await;
    api.post(EVENTS, event("before")).await.expect(201);
    pass(&api, 50 * MINUTE).await;
    let api = api.restarted_in(environment(&shift_by(&shift, 50 * MINUTE))).await;
    api.post(EVENTS, event("after")).await.expect(201);
    pass(&api, 9 * MINUTE).await;
    assert_eq!(names(&api).await, ["after", "before"]);
    pass(&api, 2 * MINUTE).await;
    assert_eq!(names(&api).await, ["after"]);
}

/// The clock of a new environment begins anew.
fn shift_by(shift: &Arc<Mutex<i64>>, time: Duration) -> Arc<Mutex<i64>> {
    *shift.lock() += time.as_secs() as i64;
    Arc::clone(shift)
}

#[tokio::test(start_paused = true)]
async fn events_from_a_clock_that_was_ahead_hold_up_no_others() {
    let shift = Arc::default();
    let api = api(&shift).await;
    shift_by(&shift, 24 * HOUR);
    api.post(EVENTS, event("ahead")).await.expect(201);
    *shift.lock() = 0;
    api.post(EVENTS, event("later")).await.expect(201);
    pass(&api, HOUR + 2 * MINUTE).await;
    assert_eq!(names(&api).await, ["ahead"]);
    pass(&api, 24 * HOUR).await;
    assert_eq!(names(&api).await, [""; 0]);
}

/// More than go at once, and none that is too young is even looked at.
#[tokio::test(start_paused = true)]
async fn any_number_goes_in_one_sweep() {
    let api = api(&Arc::default()).await;
    for at in 0..600 {
        api.post(EVENTS, event(&format!("e{at}"))).await.expect(201);
    }
    tokio::time::advance(HOUR).await;
    api.post(EVENTS, event("young")).await.expect(201);
    pass(&api, MINUTE / 2).await;
    assert_eq!(names(&api).await, ["young"]);
}
