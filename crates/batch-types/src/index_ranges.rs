//! Sets of completion indexes and their text form, `1,3-5,7`.
//!
//! Jobs keep `completedIndexes` and `failedIndexes` as such texts and name `succeededIndexes` with them. Three readers
//! exist because upstream has three: [`IndexSet::parse`] for the controller, which forgives (JC-1404), [`validate`] for
//! the API, which does not (JA 6.5), and [`first_overlap`], which skips what it cannot read (JA-S20).
//!
//! Everything here is linear in the length of the text; sets of 100,000 intervals are ordinary.

use std::cmp::Ordering;
use std::fmt;

/// A set of indexes as ascending intervals that neither touch nor overlap.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct IndexSet {
    intervals: Vec<Interval>,
}

/// The indexes from `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interval {
    pub first: u32,
    pub last: u32,
}

impl Interval {
    fn len(self) -> usize {
        (self.last - self.first) as usize + 1
    }
}

/// Why a text is not a list of indexes, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
        crate::field::quoted(.0)
    )]
    TooManyParts(String),
    #[error("cannot convert string to integer for index: {}", crate::field::quoted(.0))]
    NotAnInteger(String),
    #[error("too large index: {}", crate::field::quoted(.0))]
    TooLarge(String),
    #[error("non-increasing order, previous: {previous}, current: {current}")]
    NotIncreasing { previous: i64, current: i64 },
}

impl IndexSet {
    pub const fn new() -> Self {
        Self { intervals: Vec::new() }
    }

    /// Reads what a status holds, below `completions`: pieces that are no intervals are skipped and the first index out
    /// of range ends the list (JC-1404). Text out of order, which upstream trusts not to occur, is put in order.
    pub fn parse(text: &str, completions: i32) -> Self {
        let Ok(completions) = u32::try_from(completions) else { return Self::new() };
        let (mut intervals, rest) = plain_start(text, completions);
        let mut in_order = true;
        for piece in Pieces::new(rest) {
            let Some((first, last)) = piece.forgiving() else { continue };
            if first >= i64::from(completions) {
                break;
            }
            let last = last.min(i64::from(completions) - 1);
            let (Ok(first), Ok(last)) = (u32::try_from(first), u32::try_from(last)) else { continue };
            if first > last {
                continue;
            }
            in_order &= intervals.last().is_none_or(|previous: &Interval| first > previous.last);
            if in_order {
                push(&mut intervals, Interval { first, last });
            } else {
                intervals.push(Interval { first, last });
            }
        }
        if in_order { Self { intervals } } else { Self::from_intervals(intervals) }
    }

    /// The set of given indexes, in any order.
    pub fn from_indexes(indexes: impl IntoIterator<Item = u32>) -> Self {
        Self::from_intervals(indexes.into_iter().map(|index| Interval { first: index, last: index }).collect())
    }

    fn from_intervals(mut intervals: Vec<Interval>) -> Self {
        if !intervals.is_sorted_by_key(|interval| interval.first) {
            intervals.sort_unstable_by_key(|interval| interval.first);
        }
        let mut joined = Vec::with_capacity(intervals.len());
        for interval in intervals {
            push(&mut joined, interval);
        }
        Self { intervals: joined }
    }

    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// How many indexes, not intervals.
    pub fn len(&self) -> usize {
        self.intervals.iter().map(|interval| interval.len()).sum()
    }

    /// How many indexes below a bound.
    pub fn len_below(&self, bound: u32) -> usize {
        let below = self.intervals.iter().take_while(|interval| interval.first < bound);
        below.map(|interval| Interval { last: interval.last.min(bound - 1), ..*interval }.len()).sum()
    }

    pub fn contains(&self, index: u32) -> bool {
        self.position(index).is_ok()
    }

    /// Adds one index; false if it was there. Cheap at the end and for neighbours of what is there; for many indexes at
    /// once, build a set and take the [`union`](Self::union).
    pub fn insert(&mut self, index: u32) -> bool {
        let Err(at) = self.position(index) else { return false };
        let joins_before = at > 0 && self.intervals[at - 1].last + 1 == index;
        let joins_after = self.intervals.get(at).is_some_and(|next| index + 1 == next.first);
        match (joins_before, joins_after) {
            (true, true) => {
                self.intervals[at - 1].last = self.intervals[at].last;
                self.intervals.remove(at);
            }
            (true, false) => self.intervals[at - 1].last = index,
            (false, true) => self.intervals[at].first = index,
            (false, false) => self.intervals.insert(at, Interval { first: index, last: index }),
        }
        true
    }

    /// All indexes of both; adjacent intervals are joined (JC-1405).
    pub fn union(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.intervals.iter().peekable(), other.intervals.iter().peekable());
        let mut intervals = Vec::with_capacity(self.intervals.len() + other.intervals.len());
        while let Some(next) = match (left.peek(), right.peek()) {
            (Some(a), Some(b)) if a.first <= b.first => left.next(),
            (Some(_), None) => left.next(),
            (_, Some(_)) => right.next(),
            (None, None) => None,
        } {
            push(&mut intervals, *next);
        }
        Self { intervals }
    }

    /// How many indexes are in both.
    pub fn intersection_len(&self, other: &Self) -> usize {
        let (mut a, mut b) = (self.intervals.as_slice(), other.intervals.as_slice());
        let mut count = 0;
        while let ([x, ..], [y, ..]) = (a, b) {
            let (first, last) = (x.first.max(y.first), x.last.min(y.last));
            if first <= last {
                count += Interval { first, last }.len();
            }
            if x.last <= y.last {
                a = &a[1..];
            } else {
                b = &b[1..];
            }
        }
        count
    }

    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// The indexes in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.intervals.iter().flat_map(|interval| interval.first..=interval.last)
    }

    /// The indexes from 0 below `bound` that are missing, in ascending order.
    pub fn missing_below(&self, bound: u32) -> impl Iterator<Item = u32> + '_ {
        let starts = std::iter::once(0).chain(self.intervals.iter().map(|interval| interval.last.saturating_add(1)));
        let ends = self.intervals.iter().map(|interval| interval.first).chain(std::iter::once(u32::MAX));
        starts.zip(ends).flat_map(move |(start, end)| start..end.min(bound))
    }

    /// Where the interval with an index is, or where it would go.
    fn position(&self, index: u32) -> Result<usize, usize> {
        self.intervals.binary_search_by(|interval| {
            if interval.last < index {
                Ordering::Less
            } else if interval.first > index {
                Ordering::Greater
            } else {
                Ordering::Equal
            }
        })
    }
}

impl FromIterator<u32> for IndexSet {
    fn from_iter<I: IntoIterator<Item = u32>>(indexes: I) -> Self {
        Self::from_indexes(indexes)
    }
}

/// The canonical text: intervals of three and more with a dash, everything with commas.
impl fmt::Display for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(self.intervals.len() * 7);
        for interval in &self.intervals {
            if !text.is_empty() {
                text.push(b',');
            }
            push_number(&mut text, interval.first);
            match interval.len() {
                1 => continue,
                2 => text.push(b','),
                _ => text.push(b'-'),
            }
            push_number(&mut text, interval.last);
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// Checks a list of indexes below `completions` and counts them (JA 6.5). The first error wins.
pub fn validate(text: &str, completions: i32) -> Result<i64, Error> {
    let mut previous: Option<i64> = None;
    let mut total = 0;
    for piece in Pieces::new(text) {
        let (first, last) = piece.strict(completions)?;
        if let Some(previous) = previous.filter(|previous| *previous >= first) {
            return Err(Error::NotIncreasing { previous, current: first });
        }
        total += last - first + 1;
        previous = Some(last);
    }
    Ok(total)
}

/// The first index in both lists, walking them side by side; unreadable pieces are skipped (JA-S20).
pub fn first_overlap(completed: &str, failed: &str, completions: i32) -> Option<i64> {
    let mut completed = Pieces::new(completed).filter_map(|piece| piece.strict(completions).ok());
    let mut failed = Pieces::new(failed).filter_map(|piece| piece.strict(completions).ok());
    let (mut c, mut f) = (completed.next()?, failed.next()?);
    loop {
        if c.0 <= f.1 && f.0 <= c.1 {
            return Some(c.0.max(f.0));
        }
        if c.0 <= f.0 {
            c = completed.next()?;
        } else {
            f = failed.next()?;
        }
    }
}

/// What is between two commas.
enum Piece<'a> {
    /// `3` or `3-5`, read on the fly: what nearly every piece is.
    Plain {
        text: &'a [u8],
        first: u32,
        last: Option<u32>,
    },
    Other(&'a [u8]),
}

impl Piece<'_> {
    /// The first two numbers, whatever else there is; one number counts as both. `None` if they are not numbers.
    fn forgiving(&self) -> Option<(i64, i64)> {
        match *self {
            Self::Plain { first, last, .. } => Some((first.into(), last.unwrap_or(first).into())),
            Self::Other(text) => {
                let text = String::from_utf8_lossy(text);
                let mut parts = text.split('-');
                let first = parts.next().and_then(integer)?;
                Some((first, parts.next().map_or(Some(first), integer)?))
            }
        }
    }

    /// `x` or `x-y` with x < y, both below `completions`.
    fn strict(&self, completions: i32) -> Result<(i64, i64), Error> {
        if let Self::Plain { first, last, .. } = *self {
            let (first, last, limit) = (i64::from(first), last.map(i64::from), i64::from(completions));
            match last {
                None if first < limit => return Ok((first, first)),
                Some(last) if first < last && last < limit => return Ok((first, last)),
                _ => {}
            }
        }
        self.strict_parts(completions)
    }

    /// The same with words for what is wrong.
    #[cold]
    fn strict_parts(&self, completions: i32) -> Result<(i64, i64), Error> {
        let (Self::Plain { text, .. } | Self::Other(text)) = *self;
        let text = String::from_utf8_lossy(text);
        let mut parts = text.split('-');
        let (first, last) = (parts.next().unwrap_or_default(), parts.next());
        if parts.next().is_some() {
            return Err(Error::TooManyParts(text.into_owned()));
        }
        let bounded = |part: &str| match integer(part) {
            None => Err(Error::NotAnInteger(part.to_owned())),
            Some(index) if index >= i64::from(completions) => Err(Error::TooLarge(part.to_owned())),
            Some(index) => Ok(index),
        };
        let first = bounded(first)?;
        let Some(last) = last else { return Ok((first, first)) };
        let last = bounded(last)?;
        if first >= last {
            return Err(Error::NotIncreasing { previous: first, current: last });
        }
        Ok((first, last))
    }
}

/// The pieces of a list; an empty text has none.
struct Pieces<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Pieces<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: Some(text.as_bytes()).filter(|text| !text.is_empty()) }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let text = self.rest?;
        let (first, mut rest) = number(text);
        let mut plain = first.map(|first| (first, None));
        if let (Some(first), [b'-', after @ ..]) = (first, rest) {
            let last;
            (last, rest) = number(after);
            plain = last.map(|last| (first, Some(last)));
        }
        if !matches!(rest, [] | [b',', ..]) {
            plain = None;
            rest = &rest[rest.iter().position(|byte| *byte == b',').unwrap_or(rest.len())..];
        }
        self.rest = rest.split_first().map(|(_, rest)| rest);
        let text = &text[..text.len() - rest.len()];
        Some(match plain {
            Some((first, last)) => Piece::Plain { text, first, last },
            None => Piece::Other(text),
        })
    }
}

/// Digits that always fit into a `u32`.
const DIGITS_MAX: usize = 9;

/// The number at the start of a text and what follows its digits; `None` if there are none or too many for a `u32`.
fn number(text: &[u8]) -> (Option<u32>, &[u8]) {
    match short_number(text, 0) {
        Some((number, end)) => (Some(number), &text[end..]),
        None => (None, &text[text.iter().take_while(|byte| byte.is_ascii_digit()).count()..]),
    }
}

/// The intervals at the start of a text that is as the controller writes it, in order and below `completions`, and what
/// follows them. That is nearly always the whole text; reading it without a look at what else it could be takes half
/// the time.
fn plain_start(text: &str, completions: u32) -> (Vec<Interval>, &str) {
    let bytes = text.as_bytes();
    // Roughly as many as there are at most, without being led astray by a long text of commas.
    let mut intervals: Vec<Interval> = Vec::with_capacity(bytes.len() / 4);
    let mut at = 0;
    while let Some((first, end)) = short_number(bytes, at) {
        let (last, end) = match bytes.get(end) {
            Some(b'-') => short_number(bytes, end + 1).unwrap_or((0, end)),
            _ => (first, end),
        };
        let follows = intervals.last().is_none_or(|previous| previous.last < first);
        if !follows || first > last || last >= completions || !matches!(bytes.get(end), None | Some(b',')) {
            break;
        }
        push(&mut intervals, Interval { first, last });
        at = end + 1;
    }
    (intervals, text.get(at..).unwrap_or_default())
}

/// The number at a place and the place after it; `None` if there is none, or one with more digits than fit.
#[inline]
fn short_number(bytes: &[u8], start: usize) -> Option<(u32, usize)> {
    let mut number: u32 = 0;
    let mut at = start;
    while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        number = number.wrapping_mul(10).wrapping_add(digit.into());
        at += 1;
    }
    (1..=DIGITS_MAX).contains(&(at - start)).then_some((number, at))
}

/// A decimal integer as Go's `Atoi` reads it: an optional plus sign and leading zeros are fine. A minus sign cannot
/// occur, pieces having been split there.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('+').unwrap_or(text).as_bytes();
    if digits.is_empty() || digits.len() > 18 {
        return text.parse().ok();
    }
    digits.iter().try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0')))
}

/// Appends an interval that does not start before the last one, joining the two if they touch.
fn push(intervals: &mut Vec<Interval>, interval: Interval) {
    match intervals.last_mut() {
        Some(last) if interval.first <= last.last.saturating_add(1) => last.last = last.last.max(interval.last),
        _ => intervals.push(interval),
    }
}

/// Appends the decimal digits, two at a time: with `fmt`, formatting a large set takes three times as long.
fn push_number(text: &mut Vec<u8>, number: u32) {
    const PAIRS: [[u8; 2]; 100] = {
        let mut pairs = [[0; 2]; 100];
        let mut at = 0;
        while at < 100 {
            pairs[at] = [b'0' + (at / 10) as u8, b'0' + (at % 10) as u8];
            at += 1;
        }
        pairs
    };
    let mut buffer = [0; 10];
    let mut at = buffer.len();
    let mut rest = number;
    while rest >= 10 {
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&PAIRS[(rest % 100) as usize]);
        rest /= 100;
    }
    // One digit is left, unless the last pair was the first: then nothing is, or a zero that stands alone.
    if rest > 0 || number == 0 {
        at -= 1;
        buffer[at] = b'0' + rest as u8;
    }
    text.extend_from_slice(&buffer[at..]);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set(text: &str) -> IndexSet {
        IndexSet::parse(text, i32::MAX)
    }

    #[test]
    fn texts_are_counted_or_refused_as_upstream_does() {
        let cases: &[(&str, i32, Result<i64, &str>)] = &[
            ("", 0, Ok(0)),
            ("1", 6, Ok(1)),
            ("1-3", 6, Ok(3)),
            ("0,1-3,5,7-10", 12, Ok(9)),
            ("1,2", 6, Ok(2)),
            ("+1,02", 6, Ok(2)),
            ("0,1-3, 5", 6, Err("cannot convert string to integer for index: \" 5\"")),
            ("0,1-3,5", 5, Err("too large index: \"5\"")),
            ("8-10", 10, Err("too large index: \"10\"")),
            ("1-3,0,5", 6, Err("non-increasing order, previous: 3, current: 0")),
            ("0,0,5", 6, Err("non-increasing order, previous: 0, current: 0")),
            ("0,1-1,5", 6, Err("non-increasing order, previous: 1, current: 1")),
            ("-1,0", 6, Err("cannot convert string to integer for index: \"\"")),
            ("0,1-", 6, Err("cannot convert string to integer for index: \"\"")),
            ("0,,1,3", 6, Err("cannot convert string to integer for index: \"\"")),
            (
                "0,1--3",
                6,
                Err(
                    "the fragment \"1--3\" violates the requirement that an index interval can have at most two parts separated by '-'",
                ),
            ),
            ("99999999999999999999", 6, Err("cannot convert string to integer for index: \"99999999999999999999\"")),
            ("9999999999", 6, Err("too large index: \"9999999999\"")),
            ("x", 6, Err("cannot convert string to integer for index: \"x\"")),
        ];
        for (text, completions, wanted) in cases {
            let got = validate(text, *completions).map_err(|error| error.to_string());
            assert_eq!(got, wanted.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn overlaps_are_found_beside_unreadable_pieces() {
        let cases = [
            ("", "", None),
            ("", "1-3", None),
            ("1-2", "", None),
            ("0,2-4,6-8,12-19", "1,9-10", None),
            ("0,2-4,6-8,12-19", "1,8,9-10", Some(8)),
            ("x,0,2-4,6-8,12-19", "1,8,9-10", Some(8)),
            ("0,2-4,x,6-8,12-19", "1,y,8,9-10", Some(8)),
            ("0,2-4,6-8,12-x", "1,9-y", None),
            ("3-9", "3-5", Some(3)),
            ("2-6", "4", Some(4)),
        ];
        for (completed, failed, wanted) in cases {
            assert_eq!(first_overlap(completed, failed, 20), wanted, "{completed} {failed}");
        }
    }

    #[test]
    fn status_texts_are_read_forgivingly() {
        let cases = [
            ("", 5, ""),
            ("x,1,2-y,3", 5, "1,3"),
            ("0-9", 5, "0-4"),
            ("0,7,1", 5, "0"),
            ("1,2,3", 5, "1-3"),
            ("3,1", 5, "1,3"),
            ("4-2,1", 5, "1"),
            ("1-3-9", 5, "1-3"),
            ("0", 0, ""),
            ("0", -1, ""),
        ];
        for (text, completions, wanted) in cases {
            assert_eq!(IndexSet::parse(text, completions).to_string(), wanted, "{text}");
        }
    }

    #[test]
    fn pairs_have_a_comma_and_longer_runs_a_dash() {
        assert_eq!(IndexSet::from_indexes([7, 5, 4, 3, 1, 9, 10]).to_string(), "1,3-5,7,9,10");
        assert_eq!(IndexSet::from_indexes([u32::MAX, 0]).to_string(), "0,4294967295");
    }

    #[test]
    fn sets_answer_questions() {
        let indexes = set("1,3-5,9");
        assert_eq!(indexes.len(), 5);
        assert_eq!((indexes.len_below(0), indexes.len_below(4), indexes.len_below(99)), (0, 2, 5));
        assert!(indexes.contains(4) && !indexes.contains(2) && !indexes.contains(10));
        assert_eq!(indexes.missing_below(8).collect::<Vec<_>>(), [0, 2, 6, 7]);
        assert_eq!(indexes.missing_below(12).collect::<Vec<_>>(), [0, 2, 6, 7, 8, 10, 11]);
        assert_eq!(set("").missing_below(2).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(indexes.intersection_len(&set("4-9")), 3);
        assert_eq!(indexes.union(&set("2,6-8")).to_string(), "1-9");
    }

    #[test]
    fn a_hundred_thousand_intervals_are_ordinary() {
        let indexes: IndexSet = (0..100_000).map(|index| index * 2).collect();
        let text = indexes.to_string();
        assert_eq!(IndexSet::parse(&text, 200_000), indexes);
        assert_eq!(validate(&text, 200_000), Ok(100_000));
        assert_eq!(first_overlap(&text, &text, 200_000), Some(0));
        let odd: IndexSet = (0..100_000).map(|index| index * 2 + 1).collect();
        assert_eq!(indexes.union(&odd).to_string(), "0-199999");
    }

    proptest! {
        #[test]
        fn canonical_text_and_set_are_the_same_thing(indexes in prop::collection::btree_set(0u32..400, 0..120)) {
            let set = IndexSet::from_indexes(indexes.iter().copied());
            let text = set.to_string();
            prop_assert_eq!(&IndexSet::parse(&text, 400), &set);
            prop_assert_eq!(&IndexSet::parse(&text, 400).to_string(), &text);
            prop_assert_eq!(validate(&text, 400), Ok(indexes.len() as i64));
            prop_assert_eq!(set.iter().collect::<BTreeSet<_>>(), indexes);
        }

        #[test]
        fn inserting_and_uniting_agree(a in prop::collection::vec(0u32..200, 0..80), b in prop::collection::vec(0u32..200, 0..80)) {
            let mut inserted = IndexSet::from_indexes(a.iter().copied());
            for index in &b {
                let was_there = inserted.contains(*index);
                prop_assert_eq!(inserted.insert(*index), !was_there);
            }
            let (left, right) = (IndexSet::from_indexes(a.iter().copied()), IndexSet::from_indexes(b.iter().copied()));
            prop_assert_eq!(&left.union(&right), &inserted);
            prop_assert_eq!(left.len() + right.len() - left.intersection_len(&right), inserted.len());
            let all: BTreeSet<_> = a.into_iter().chain(b).collect();
            prop_assert_eq!(inserted.missing_below(200).count(), 200 - all.len());
        }

        #[test]
        fn any_text_is_read_without_fail(text in "[-,+0-9x ]{0,30}", completions in -3i32..40) {
            let set = IndexSet::parse(&text, completions);
            prop_assert!(set.iter().all(|index| i64::from(index) < i64::from(completions)));
            if let Ok(count) = validate(&text, completions) {
                prop_assert_eq!(set.len() as i64, count);
            }
            first_overlap(&text, &text, completions);
        }
    }
}
