//! A few seeds on every run of the tests. Many more: `cargo run --profile prove -p sim -- --seeds 1000`.

use sim::run::{Verdict, run};
use sim::scenario::Scenario;

#[test]
fn a_few_seeds_are_sound_and_give_the_same_bytes_again() {
    for seed in 1..=6 {
        let scenario = Scenario::of(seed);
        let first = run(&scenario, false);
        assert_eq!(first.verdict, Verdict::Sound, "replay: cargo run --profile prove -p sim -- --seed {seed}");
        assert!(first.revisions > 30, "seed {seed}: only {} revisions", first.revisions);
        let second = run(&scenario, false);
        assert_eq!((first.digest, first.revisions), (second.digest, second.revisions), "seed {seed} does not repeat");
    }
}

/// Scenarios that found bugs, by their seeds at the time; what they found is in `docs/reliability.md`.
#[test]
fn seeds_that_once_failed_are_sound() {
    for seed in [
        3, 20, 34, 38, 1516, 2423, 2637, 3016, 3323, 3564, 4188, 4267, 9051, 9479, 10063, 11255, 11918, 12396, 12786,
        13513, 14003, 14827, 16054, 18200, 18988,
    ] {
        let scenario = Scenario::of(seed);
        let outcome = run(&scenario, false);
        assert_eq!(outcome.verdict, Verdict::Sound, "replay: cargo run --profile prove -p sim -- --seed {seed}");
    }
}
