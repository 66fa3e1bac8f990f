//! Names of new pods: they look as if the API server had generated them, and are the same whenever the same pod is meant.
//!
//! Upstream leaves the name to the API server, so a creation whose answer was lost yields a second pod when it is
//! repeated. Here a name is a function of the Job and of which of its pods is meant; a repeated creation meets the pod
//! of the first (INV-22, REG-C09). `generateName` is still set, so the pods cannot be told apart from upstream's.

use batch_types::names::{GENERATED_SUFFIX_ALPHABET, GENERATED_SUFFIX_LEN, generated};

use super::Uid;
use teeth::{Mutation, is};

/// What the API server keeps of a `generateName`.
const PREFIX_MAX: usize = 58;
/// How many suffixes there are.
const SUFFIXES: u64 = (GENERATED_SUFFIX_ALPHABET.len() as u64).pow(GENERATED_SUFFIX_LEN as u32);

/// The names of one Job's pods.
#[derive(Debug, Clone)]
pub(crate) struct PodNames<'a> {
    job_name: &'a str,
    seed: u64,
}

/// The name of a Job's pod number `number`, or of that index's: what the controller will call it.
pub fn pod_name(job_name: &str, job: &Uid, index: Option<u32>, number: u64) -> String {
    PodNames::new(job_name, job).name(index, number)
}

/// How many pods a NonIndexed Job has had, has, and should have active.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Population {
    pub(crate) ended: u64,
    pub(crate) active: u64,
    pub(crate) wanted: u64,
}

impl<'a> PodNames<'a> {
    pub(crate) fn new(job_name: &'a str, job_uid: &Uid) -> Self {
        Self { job_name, seed: fnv1a(job_uid.to_string().as_bytes()) }
    }

    /// `metadata.generateName` (JC-1202). A long Job name gives way to the index.
    pub(crate) fn prefix(&self, index: Option<u32>) -> String {
        let Some(index) = index else { return format!("{}-", self.job_name) };
        let tail = format!("-{index}-");
        let kept = self.job_name.floor_char_boundary(PREFIX_MAX.saturating_sub(tail.len()));
        format!("{}{tail}", &self.job_name[..kept])
    }

    /// The name of the `number`th pod of the Job, or of that index of the Job. Different numbers give different names
    /// (up to 14 million of them).
    pub(crate) fn name(&self, index: Option<u32>, number: u64) -> String {
        let seed = index.map_or(self.seed, |index| self.seed ^ fnv1a(&index.to_le_bytes()));
        let number = if is(Mutation::C08) || is(Mutation::C09) { number + next_draw() } else { number };
        generated(&self.prefix(index), &suffix(seed, number))
    }

    /// Names for new pods of a NonIndexed Job, whatever became of an earlier attempt to create the same pods.
    ///
    /// A Job of which `ended` pods have ended and `active` are active has had the pods 0 to `ended + active - 1`, so the
    /// next numbers follow those. Lower ones are free if a creation failed in between; numbers beyond the `wanted` pods
    /// are needed when others were removed and are still there, because no count includes them.
    pub(crate) fn fresh(&self, pods: Population, count: usize, taken: impl Fn(&str) -> bool) -> Vec<String> {
        let next = pods.ended.saturating_add(pods.active).min(SUFFIXES);
        let end = pods.ended.saturating_add(pods.wanted).clamp(next, SUFFIXES);
        let numbers = (next..end).chain((0..next).rev()).chain(end..SUFFIXES);
        let names = numbers.map(|number| self.name(None, number));
        names.filter(|name| !taken(name)).take(count).collect()
    }

    /// The name for the next pod of an index; `attempts` are known to be over.
    pub(crate) fn fresh_for_index(&self, index: u32, attempts: u64, taken: impl Fn(&str) -> bool) -> String {
        let numbers = (attempts..).take(SUFFIXES as usize);
        let mut names = numbers.map(|number| self.name(Some(index), number));
        names.find(|name| !taken(name)).unwrap_or_else(|| self.name(Some(index), attempts))
    }
}

/// A one-to-one map from numbers to suffixes that looks random: an affine map whose factor shares no divisor with the
/// number of suffixes, which is a power of three.
fn suffix(seed: u64, number: u64) -> String {
    let factor = (seed % SUFFIXES) / 3 * 3 + 1;
    let offset = (seed >> 32) % SUFFIXES;
    let mut value = (factor * (number % SUFFIXES) + offset) % SUFFIXES;
    let base = GENERATED_SUFFIX_ALPHABET.len() as u64;
    let characters = (0..GENERATED_SUFFIX_LEN).map(|_| {
        let character = GENERATED_SUFFIX_ALPHABET[(value % base) as usize];
        value /= base;
        char::from(character)
    });
    characters.collect()
}

/// Names as a server would draw them: never the same again.
fn next_draw() -> u64 {
    static DRAWN: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    1000 * DRAWN.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// FNV-1a: short, and the same in every release, which names of existing pods depend on.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(job_name: &str) -> PodNames<'_> {
        PodNames::new(job_name, &Uid::new("0f8fad5b-d9cb-469f-a165-70867728950e"))
    }

    /// V-7, JC-1202.
    #[test]
    fn prefixes_keep_the_index() {
        assert_eq!(names("job").prefix(None), "job-");
        assert_eq!(names("indexed-job").prefix(Some(1)), "indexed-job-1-");
        for length in [57, 70] {
            let prefix = names(&"n".repeat(length)).prefix(Some(1));
            assert_eq!(prefix, format!("{}-1-", "n".repeat(55)));
        }
    }

    #[test]
    fn names_look_generated() {
        for (job_name, index) in
            [("a", None), ("a", Some(7)), (&*"n".repeat(63), None), (&*"n".repeat(63), Some(12345))]
        {
            let names = names(job_name);
            let name = names.name(index, 3);
            let kept = names.prefix(index).chars().take(58).collect::<String>();
            let suffix = name.strip_prefix(&kept).unwrap();
            assert_eq!(suffix.len(), 5);
            assert!(suffix.bytes().all(|character| GENERATED_SUFFIX_ALPHABET.contains(&character)), "{name}");
            assert!(name.len() <= 63);
        }
    }

    /// The names of existing pods depend on this.
    #[test]
    fn names_stay_the_same_across_releases() {
        let of = |number| names("a").name(None, number);
        assert_eq!([of(0), of(1)], ["a-c995n", "a-lp8wr"]);
    }

    #[test]
    fn different_numbers_and_jobs_have_different_names() {
        let names = names("a");
        let all: BTreeSet<String> = (0..20_000).map(|number| names.name(None, number)).collect();
        assert_eq!(all.len(), 20_000);
        let other = PodNames::new("a", &Uid::new("1f8fad5b-d9cb-469f-a165-70867728950e"));
        assert_ne!(names.name(None, 0), other.name(None, 0));
    }

    #[test]
    fn the_same_pods_get_the_same_names() {
        let names = names("a");
        let fresh = |ended, active, wanted, count, there: &[u64]| {
            let there: Vec<String> = there.iter().map(|number| names.name(None, *number)).collect();
            let population = Population { ended, active, wanted };
            let picked = names.fresh(population, count, |name| there.iter().any(|taken| taken == name));
            let number = |name: &String| (0..10).find(|number| names.name(None, *number) == *name).unwrap();
            picked.iter().map(number).collect::<Vec<u64>>()
        };
        assert_eq!(fresh(0, 0, 3, 3, &[]), [0, 1, 2]);
        // One of three is there: the other two are the missing ones.
        assert_eq!(fresh(0, 1, 3, 2, &[1]), [2, 0]);
        // One has ended; whether its object is still there makes no difference.
        assert_eq!(fresh(1, 2, 3, 1, &[0, 1, 2]), [3]);
        assert_eq!(fresh(1, 2, 3, 1, &[0, 1]), [3]);
        // Two were removed by us and still terminate.
        assert_eq!(fresh(0, 0, 2, 2, &[0, 1]), [2, 3]);
    }

    #[test]
    fn an_index_counts_its_attempts() {
        let names = names("a");
        let of = |number| names.name(Some(4), number);
        assert_eq!(names.fresh_for_index(4, 0, |_| false), of(0));
        assert_eq!(names.fresh_for_index(4, 0, |name| name == of(0)), of(1));
        assert_eq!(names.fresh_for_index(4, 2, |_| false), of(2));
    }
}
