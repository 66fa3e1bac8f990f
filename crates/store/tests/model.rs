//! Random histories against the naive model: lists at every revision, watches from every revision.

#![allow(clippy::unwrap_used, reason = "in a test a panic is a failure with a backtrace")]

mod common;

use common::model::Model;
use common::*;
use proptest::prelude::*;
use store::{Expect, Options, ReadError, Recent, Transaction};

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// Puts and deletes of one transaction.
    Commit(Vec<(usize, bool)>),
    /// A transaction that must not take effect.
    Refused(usize),
    /// Compacts this share of the history, in percent.
    Compact(u64),
    Reopen,
}

const KEYS: [&str; 6] = ["t/a", "t/b", "t/b/c", "t/d", "u/a", "u/b"];

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS.len();
    prop_oneof![
        12 => prop::collection::vec((key.clone(), prop::bool::weighted(0.3)), 1..4).prop_map(Step::Commit),
        2 => key.prop_map(Step::Refused),
        1 => (0..=100_u64).prop_map(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

async fn run(disk: &impl Disk, options: &Options, steps: &[Step]) {
    let mut store = disk.open(options.clone());
    let mut model = Model::default();
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Commit(operations) => {
                let mut transaction = Transaction::new();
                for (key, delete) in operations {
                    let key = KEYS[*key];
                    let value = format!("{number}");
                    if *delete && model.at(model.revision()).contains_key(key) {
                        model.delete(key, &value);
                        transaction = transaction.delete(key, stamped(&value));
                    } else {
                        model.put(key, &value);
                        transaction = transaction.put(key, stamped(&value));
                    }
                }
                assert_eq!(commit(&store, transaction).await, model.revision());
            }
            Step::Refused(key) => {
                let wrong = match model.at(model.revision()).get(KEYS[*key]) {
                    Some((revision, _)) => Expect::AtRevision(revision + 1),
                    None => Expect::Present,
                };
                let transaction = Transaction::new().put("t/a", stamped("x")).require(KEYS[*key], wrong);
                assert!(store.commit(transaction).await.is_err());
            }
            Step::Compact(percent) => {
                let target = model.revision() * percent / 100;
                assert!(store.compact(target).await.unwrap() >= target);
            }
            Step::Reopen => {
                drop(store);
                store = disk.open(options.clone());
            }
        }
        assert_eq!(store.revision(), model.revision());
    }
    agree(&store, &model).await;
    let before = (store.revision(), store.compacted_revision(), store.stats().keys);
    drop(store);
    let store = disk.open(options.clone());
    assert_eq!((store.revision(), store.compacted_revision(), store.stats().keys), before);
    agree(&store, &model).await;
}

async fn agree(store: &TestStore, model: &Model) {
    let compacted = store.compacted_revision();
    for prefix in ["t/", "t/b", "u/", "v/"] {
        assert_eq!(listed(store, prefix, None).unwrap(), model.listed(prefix, model.revision()));
        for revision in 0..=model.revision() {
            let list = listed(store, prefix, Some(revision));
            let watch = store.watch(prefix, revision);
            if revision < compacted {
                assert!(matches!(list, Err(ReadError::Compacted { .. })));
                assert!(matches!(watch, Err(ReadError::Compacted { .. })));
                continue;
            }
            assert_eq!(list.unwrap(), model.listed(prefix, revision), "{prefix} at {revision}");
            let expected = model.watched(prefix, revision);
            let mut watch = watch.unwrap();
            assert_eq!(watched(&mut watch, expected.len()).await, expected, "{prefix} from {revision}");
            assert_eq!(watch.progress(), model.revision());
        }
    }
}

fn check<D: Disk>(recent_events: usize, steps: &[Step]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let recent = Recent { events_max: recent_events, ..Recent::default() };
    let options = Options { recent, ..Options::default() };
    runtime.block_on(run(&D::new(), &options, steps));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn histories_agree_with_the_model_in_memory(steps in prop::collection::vec(step(), 1..40), recent in 0..12_usize) {
        check::<Memory>(recent, &steps);
    }

    #[test]
    fn histories_agree_with_the_model_across_power_loss(
        steps in prop::collection::vec(step(), 1..40),
        recent in 0..12_usize,
    ) {
        check::<Forgetful>(recent, &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn histories_agree_with_the_model_in_a_directory(
        steps in prop::collection::vec(step(), 1..30),
        recent in 0..12_usize,
    ) {
        check::<Fjall>(recent, &steps);
    }
}
