//! Moments that nobody can tell apart.
//!
//! After most faults a world comes back to where it would have been without, or gets to where another fault has led it
//! already; to try everything there again proves nothing. A *juncture* is all that can be told of a world at the moment of
//! a call: what is stored, and what is called and stored from there on if nothing else goes wrong, each with the time until
//! then; but without the names, uids and times of day that chance and delays give. What lies in wait (a watch that lags, a
//! call that is still on its way) is part of it.
//!
//! What this cannot see is memory of a controller that does not show in what it does next unless something else goes wrong,
//! such as how often it has failed in a row. So a part of the pairs that are left out is run and judged all the same, and
//! the report says how many of those went on in another way (one or two in a hundred, with other delays).

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    faults::{Call, Fault, Point, TOUCHED},
    oracle::Record,
};

/// A number that two moments share if nobody can tell them apart.
pub type Juncture = u64;

/// What happened in a world, in a form in which its moments can be compared.
#[derive(Debug, Clone)]
pub struct Chronicle {
    changes: Vec<Change>,
    calls: Vec<Deed>,
    /// How many names there are.
    names: usize,
}

/// A revision.
#[derive(Debug, Clone)]
struct Change {
    revision: u64,
    at: Option<Timestamp>,
    by: &'static str,
    key: String,
    /// Nothing if it was removed.
    object: Option<Vec<Token>>,
    /// Its uid, which is a name.
    uid: Option<usize>,
    /// The uid of the owner of a pod that is over and that nobody holds.
    over: Option<usize>,
}

/// A call.
#[derive(Debug, Clone)]
struct Deed {
    at: Timestamp,
    life: u32,
    seen: u64,
    unseen_pods: usize,
    is_event: bool,
    what: Vec<Token>,
}

/// A piece of an object: something that means the same in every run, or the name of something.
#[derive(Debug, Clone, Copy)]
enum Token {
    Word(u64),
    Name(usize),
}

impl Chronicle {
    pub(super) fn of(records: &[Record], calls: &[Call]) -> Self {
        let read = |record: &Record| record.value.as_ref().and_then(|bytes| serde_json::from_slice(bytes).ok());
        let objects: Vec<Option<Value>> = records.iter().map(read).collect();
        let mut names = Names::default();
        objects.iter().flatten().for_each(|object| names.learn(object));
        let changes = records.iter().zip(&objects).map(|(record, object)| Change {
            revision: record.revision,
            at: record.at,
            by: record.by,
            key: record.key.clone(),
            object: object.as_ref().map(|object| names.tokens(object)),
            uid: object.as_ref().and_then(|object| names.number(&object["metadata"]["uid"])),
            over: object.as_ref().and_then(|object| names.owner_of_what_is_over(object)),
        });
        let calls = calls.iter().map(|call| {
            let mut what = vec![word(call.controller), word(&call.kind), word(&call.code.to_string())];
            call.path.split('/').for_each(|part| names.text(part, &mut what));
            let Call { at, life, seen, unseen_pods, .. } = *call;
            Deed { at, life, seen, unseen_pods, is_event: call.is_event(), what }
        });
        Self { changes: changes.collect(), calls: calls.collect(), names: names.known.len() }
    }

    /// The moment of a call, in a run with these faults.
    pub fn juncture(&self, number: usize, points: &[Point]) -> Option<Juncture> {
        let now = self.calls.get(number)?;
        let mut telling = Telling::new(self.names, now.at);
        let (past, future) = self.changes.split_at(self.changes.partition_point(|change| change.revision <= now.seen));
        stored(past, future).for_each(|object| telling.tokens(object));
        self.in_wait(points, number).for_each(|what| what.hash(&mut telling.state));
        let mut future = future.iter().peekable();
        // Nothing depends on what the world was told.
        for deed in self.calls[number..].iter().filter(|deed| !deed.is_event) {
            while let Some(change) = future.next_if(|change| change.revision <= deed.seen) {
                telling.change(change);
            }
            (deed.life - now.life, deed.unseen_pods).hash(&mut telling.state);
            telling.time(deed.at);
            telling.tokens(&deed.what);
        }
        future.for_each(|change| telling.change(change));
        Some(telling.state.finish())
    }

    /// What is still to come of faults before a call, and how many calls ago it began.
    fn in_wait(&self, points: &[Point], number: usize) -> impl Iterator<Item = (Fault, usize)> {
        points.iter().filter(move |(at, _)| *at < number).filter_map(move |(at, fault)| {
            let ago = self.calls[*at..number].iter().filter(|deed| !deed.is_event).count();
            match fault {
                // Watches lag from there on to the end; what lists have left out comes as late.
                Fault::Lag(_) | Fault::Past(_) => Some((*fault, 0)),
                Fault::Late(calls) if ago <= usize::from(*calls) => Some((*fault, ago)),
                Fault::LateAfterRestart if ago <= 1 => Some((*fault, ago)),
                _ => None,
            }
        })
    }
}

/// What is there after some changes, the oldest first, and matters.
///
/// A pod that is over, that nobody holds and whose owner is gone concerns nobody any more, unless it still changes: it is
/// neither counted nor adopted, and the names of other Jobs' pods are others.
fn stored<'a>(past: &'a [Change], future: &[Change]) -> impl Iterator<Item = &'a [Token]> {
    let mut objects: BTreeMap<u64, &Change> = BTreeMap::new();
    let mut made: HashMap<&str, u64> = HashMap::new();
    for change in past {
        match &change.object {
            Some(_) => {
                objects.insert(*made.entry(&change.key).or_insert(change.revision), change);
            }
            None => {
                made.remove(&*change.key).map(|at| objects.remove(&at));
            }
        }
    }
    let there: BTreeSet<usize> = objects.values().filter_map(|change| change.uid).collect();
    let touched: BTreeSet<&str> = future.iter().map(|change| &*change.key).collect();
    let touched: BTreeSet<u64> = made.iter().filter(|(key, _)| touched.contains(*key)).map(|(_, at)| *at).collect();
    let concerns_nobody = move |at: &u64, change: &Change| {
        change.over.is_some_and(|owner| !there.contains(&owner)) && !touched.contains(at)
    };
    let objects = objects.into_iter().filter(move |(at, change)| !concerns_nobody(at, change));
    objects.filter_map(|(_, change)| change.object.as_deref())
}

/// Tells of a world from one moment on. Names become numbers, in the order in which they come up.
struct Telling {
    state: DefaultHasher,
    now: Timestamp,
    numbers: Vec<Option<usize>>,
    next: usize,
}

impl Telling {
    fn new(names: usize, now: Timestamp) -> Self {
        Self { state: DefaultHasher::new(), now, numbers: vec![None; names], next: 0 }
    }

    fn tokens(&mut self, tokens: &[Token]) {
        tokens.len().hash(&mut self.state);
        for token in tokens {
            match token {
                Token::Word(word) => word.hash(&mut self.state),
                Token::Name(name) => {
                    let number = *self.numbers[*name].get_or_insert(self.next);
                    self.next = self.next.max(number + 1);
                    number.hash(&mut self.state);
                }
            }
        }
    }

    fn time(&mut self, at: Timestamp) {
        (at.as_millisecond() - self.now.as_millisecond()).hash(&mut self.state);
    }

    fn change(&mut self, change: &Change) {
        change.by.hash(&mut self.state);
        change.at.into_iter().for_each(|at| self.time(at));
        change.object.is_some().hash(&mut self.state);
        self.tokens(change.object.as_deref().unwrap_or_default());
    }
}

/// What chance has named.
#[derive(Default)]
struct Names {
    known: HashMap<String, usize>,
    /// Texts that were read, once all names are known.
    read: RefCell<HashMap<String, Token>>,
}

impl Names {
    fn learn(&mut self, object: &Value) {
        let metadata = &object["metadata"];
        let generated = metadata["generateName"].is_string() || object["kind"] == "Pod";
        for name in [Some(&metadata["uid"]), generated.then_some(&metadata["name"])].into_iter().flatten() {
            let next = self.known.len();
            self.known.entry(name.as_str().unwrap_or_default().to_owned()).or_insert(next);
        }
    }

    fn number(&self, name: &Value) -> Option<usize> {
        self.known.get(name.as_str()?).copied()
    }

    /// The controller of a pod that has ended and that no finalizer and no deletion concerns any more.
    fn owner_of_what_is_over(&self, object: &Value) -> Option<usize> {
        let metadata = &object["metadata"];
        let held = metadata["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        let ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let over = object["kind"] == "Pod" && ended && !held && metadata["deletionTimestamp"].is_null();
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let mut owners = owners.filter(|owner| over && owner["controller"] == true);
        owners.next().and_then(|owner| self.number(&owner["uid"]))
    }

    fn tokens(&self, object: &Value) -> Vec<Token> {
        let mut tokens = Vec::new();
        self.value(object, &mut tokens);
        tokens
    }

    fn value(&self, value: &Value, tokens: &mut Vec<Token>) {
        match value {
            Value::Object(members) => {
                for (key, value) in members.iter().filter(|(key, value)| is_told(key, value)) {
                    tokens.push(word(key));
                    self.value(value, tokens);
                }
                tokens.push(word("}"));
            }
            Value::Array(elements) => {
                elements.iter().for_each(|element| self.value(element, tokens));
                tokens.push(word("]"));
            }
            Value::String(text) => self.text(text, tokens),
            other => tokens.push(word(&other.to_string())),
        }
    }

    fn text(&self, text: &str, tokens: &mut Vec<Token>) {
        // The same few come up again and again.
        if let Some(token) = self.read.borrow().get(text) {
            return tokens.push(*token);
        }
        let token = self.token(text);
        self.read.borrow_mut().insert(text.to_owned(), token);
        tokens.push(token);
    }

    fn token(&self, text: &str) -> Token {
        if let Some(name) = self.known.get(text) {
            return Token::Name(*name);
        }
        if text.parse::<Timestamp>().is_ok() {
            return word("a time");
        }
        let within = self.known.keys().filter(|name| text.contains(*name));
        word(&within.fold(text.to_owned(), |text, name| text.replace(name, "a name")))
    }
}

/// Versions and their times differ as revisions and hours do. The note of a stranger is only its version, and nobody reads
/// annotations to find out whether there are any.
fn is_told(key: &str, value: &Value) -> bool {
    match key {
        "managedFields" | "resourceVersion" | TOUCHED => false,
        "annotations" => value.as_object().is_none_or(|all| all.keys().any(|key| key != TOUCHED)),
        _ => true,
    }
}

fn word(text: &str) -> Token {
    let mut state = DefaultHasher::new();
    text.hash(&mut state);
    Token::Word(state.finish())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::faults::{How, Lag, Watched};

    /// A pod of a Job is made, runs and is released; calls are made at the first and the last revision.
    struct Story {
        uid: &'static str,
        begin: i64,
        succeeded: u32,
        pause_ms: i64,
    }

    const STORY: Story = Story { uid: "1f", begin: 1_000_000, succeeded: 0, pause_ms: 20 };

    impl Story {
        fn chronicle(&self) -> Chronicle {
            let at = |millis: i64| Timestamp::from_millisecond(self.begin + millis).unwrap();
            let record = |revision, millis, key: &str, value: Option<Value>| Record {
                revision,
                by: "job",
                at: Some(at(millis)),
                key: key.to_owned(),
                value: value.map(|value| value.to_string().into()),
            };
            let name = format!("a-{}", self.uid);
            let job = json!({"kind": "Job", "metadata": {"name": "a", "uid": "0", "creationTimestamp": at(0).to_string()},
                "status": {"succeeded": self.succeeded, "uncountedTerminatedPods": {"succeeded": [self.uid]}}});
            let pod = |version: u32| json!({"kind": "Pod", "metadata": {"name": name, "uid": self.uid, "resourceVersion": version.to_string()}});
            let records = [
                record(1, 0, "jobs/a", Some(job)),
                record(2, 10, "pods/a", Some(pod(2))),
                record(3, 10 + self.pause_ms, "pods/a", None),
            ];
            let call = |seen, millis| Call {
                life: 0,
                controller: "job",
                kind: "PATCH pods".to_owned(),
                path: format!("/api/v1/pods/{name}"),
                fault: None,
                code: 200,
                seen,
                revision: seen,
                at: at(millis),
                unseen_pods: 0,
                uncounted: None,
                took_effect: false,
            };
            Chronicle::of(&records, &[call(1, 5), call(2, 10 + self.pause_ms)])
        }

        fn junctures(&self) -> [Option<Juncture>; 3] {
            let chronicle = self.chronicle();
            [0, 1, 2].map(|call| chronicle.juncture(call, &[]))
        }
    }

    #[test]
    fn other_names_and_hours_make_no_difference() {
        let [first, second, none] = STORY.junctures();
        assert!(first.is_some() && second.is_some() && none.is_none());
        assert_ne!(first, second);
        let other = Story { uid: "9c", begin: 77_000_000, ..STORY };
        assert_eq!(other.junctures(), [first, second, None]);
    }

    #[test]
    fn what_is_stored_what_comes_and_when_do() {
        let [first, second, _] = STORY.junctures();
        let counted = Story { succeeded: 1, ..STORY }.junctures();
        assert!(counted[0] != first && counted[1] != second);
        // A delay that is over by the second call cannot be told from there.
        let slower = Story { pause_ms: 30, ..STORY }.junctures();
        assert_ne!(slower[0], first);
        assert_eq!(slower[1], second);
    }

    #[test]
    fn what_lies_in_wait_does() {
        let chronicle = STORY.chronicle();
        let at = |fault| chronicle.juncture(1, &[(0, fault)]);
        let plain = chronicle.juncture(1, &[]);
        let lag = Lag { what: Watched::Pods, how: How::Held(3), patience_ms: 3_000 };
        assert_ne!(at(Fault::Lag(lag)), plain);
        assert_ne!(at(Fault::Late(1)), plain);
        assert_ne!(at(Fault::Late(1)), at(Fault::Late(2)));
        assert_eq!(at(Fault::Late(0)), plain, "it has arrived");
        assert_eq!(at(Fault::Refused(409)), plain, "it is over");
    }
}
