//! The history as a whole: what is written is found again, whatever happens to the process that wrote it.

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use history::{Bounds, LOG_MAX, Query, Reader, Record, Run, Writer};

const PATIENCE: Duration = Duration::from_secs(60);

fn record(number: u64) -> Record {
    Record {
        namespace: "default".to_owned(),
        job_name: Some(format!("job-{}", number % 3)),
        job_uid: Some(format!("job-uid-{}", number % 3)),
        index: u32::try_from(number).ok(),
        pod_name: format!("pod-{number}"),
        pod_uid: format!("uid-{number}"),
        node: "here".to_owned(),
        container: Some("main".to_owned()),
        finished_at: jiff::Timestamp::from_second(1_800_000_000 + number.cast_signed()).ok(),
        exit_code: Some(i32::from(number % 2 == 1)),
        reason: if number % 2 == 1 { "Error" } else { "Completed" }.to_owned(),
        ..Record::default()
    }
}

/// Sends when it is dropped.
struct Ack(std::sync::mpsc::Sender<()>);

impl Drop for Ack {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

fn append(writer: &Writer, number: u64) -> Receiver<()> {
    let (sender, receiver) = channel();
    let text = format!("log of {number}\n").into_bytes();
    writer.append(Run {
        record: record(number),
        log: Some(Box::new(move |_max| (text, false))),
        written: Box::new(Ack(sender)),
    });
    receiver
}

fn numbers(directory: &Path, query: &Query) -> Vec<u64> {
    let found = Reader::new(directory).find(query).expect("the history can be read");
    let number = |name: &str| name.strip_prefix("pod-").and_then(|number| number.parse().ok());
    found.iter().map(|found| number(&found.record.pod_name).expect("a pod of these tests")).collect()
}

#[test]
fn records_are_found_by_job_index_outcome_and_time_with_their_logs() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::open(dir.path(), Bounds::default()).unwrap();
    for number in 0..9 {
        append(&writer, number).recv_timeout(PATIENCE).unwrap();
    }
    // The writer is still at work: a reader needs no lock.
    let all = Query::default();
    assert_eq!(numbers(dir.path(), &all), (0..9).collect::<Vec<_>>());
    for (query, expected) in [
        (Query { job: Some("job-1".to_owned()), ..all.clone() }, vec![1, 4, 7]),
        (Query { job: Some("job-uid-1".to_owned()), failed: true, ..all.clone() }, vec![1, 7]),
        (Query { index: Some(4), ..all.clone() }, vec![4]),
        (Query { pod: Some("uid-5".to_owned()), ..all.clone() }, vec![5]),
        (Query { container: Some("other".to_owned()), ..all.clone() }, vec![]),
        (Query { namespace: Some("other".to_owned()), ..all.clone() }, vec![]),
        (Query { since: jiff::Timestamp::from_second(1_800_000_007).ok(), ..all.clone() }, vec![7, 8]),
    ] {
        assert_eq!(numbers(dir.path(), &query), expected, "{query:?}");
    }
    let reader = Reader::new(dir.path());
    for found in reader.find(&all).unwrap() {
        let log = String::from_utf8(reader.log(&found).unwrap().unwrap()).unwrap();
        assert_eq!(log, format!("log of {}\n", found.record.index.unwrap()));
    }
}

#[test]
fn a_run_that_was_recorded_twice_is_found_once() {
    let dir = tempfile::tempdir().unwrap();
    for _restart in 0..2 {
        let writer = Writer::open(dir.path(), Bounds::default()).unwrap();
        append(&writer, 1).recv_timeout(PATIENCE).unwrap();
    }
    assert_eq!(numbers(dir.path(), &Query::default()), [1]);
}

#[test]
fn of_a_long_log_the_end_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::open(dir.path(), Bounds::default()).unwrap();
    let log = [vec![b'a'; 10], vec![b'b'; LOG_MAX]].concat();
    writer.append(Run { record: record(1), log: Some(Box::new(|_max| (log, false))), written: Box::new(()) });
    drop(writer);
    let reader = Reader::new(dir.path());
    let found = reader.find(&Query::default()).unwrap();
    assert!(found[0].record.log_truncated);
    assert_eq!(reader.log(&found[0]).unwrap().unwrap(), vec![b'b'; LOG_MAX]);
}

/// A crash may leave any part of the last record.
#[test]
fn a_torn_end_is_cut_off_and_writing_goes_on() {
    let whole = tempfile::tempdir().unwrap();
    let writer = Writer::open(whole.path(), Bounds::default()).unwrap();
    (0..3).for_each(|number| append(&writer, number).recv_timeout(PATIENCE).unwrap());
    drop(writer);
    let name = fs::read_dir(whole.path()).unwrap().next().unwrap().unwrap().file_name();
    let bytes = fs::read(whole.path().join(&name)).unwrap();
    // A prime, so that every part of a record is hit sooner or later.
    for length in (0..bytes.len()).step_by(13) {
        let torn = tempfile::tempdir().unwrap();
        fs::write(torn.path().join(&name), &bytes[..length]).unwrap();
        let before = numbers(torn.path(), &Query::default());
        let writer = Writer::open(torn.path(), Bounds::default()).unwrap();
        append(&writer, 9).recv_timeout(PATIENCE).unwrap();
        drop(writer);
        let expected: Vec<u64> = before.into_iter().chain([9]).collect();
        assert_eq!(numbers(torn.path(), &Query::default()), expected, "cut at {length} of {}", bytes.len());
    }
}

#[test]
fn bytes_that_are_not_ours_are_neither_read_nor_extended() {
    let dir = tempfile::tempdir().unwrap();
    let foreign = dir.path().join("0000000000000007.history");
    fs::write(&foreign, "something else entirely").unwrap();
    let writer = Writer::open(dir.path(), Bounds::default()).unwrap();
    append(&writer, 1).recv_timeout(PATIENCE).unwrap();
    drop(writer);
    assert_eq!(numbers(dir.path(), &Query::default()), [1]);
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "something else entirely");
}

#[test]
fn damage_hides_the_rest_of_its_file_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::open(dir.path(), Bounds { bytes_max: 8 << 10, age_max: None }).unwrap();
    (0..8).for_each(|number| append(&writer, number).recv_timeout(PATIENCE).unwrap());
    drop(writer);
    let mut files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 1);
    let length = fs::metadata(&files[0]).unwrap().len();
    OpenOptions::new().write(true).open(&files[0]).unwrap().set_len(length - 1).unwrap();
    let found = numbers(dir.path(), &Query::default());
    assert!(found.contains(&7) && !found.is_empty());
}

#[test]
fn a_full_queue_loses_runs_but_never_waits_or_forgets_to_report() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::open(dir.path(), Bounds::default()).unwrap();
    let (release, held) = channel::<()>();
    // The first log takes its time, so the rest piles up.
    let (sender, _first) = channel();
    writer.append(Run {
        record: record(0),
        log: Some(Box::new(move |_max| {
            let _ = held.recv_timeout(PATIENCE);
            (Vec::new(), false)
        })),
        written: Box::new(Ack(sender)),
    });
    let acks: Vec<Receiver<()>> = (1..6000).map(|number| append(&writer, number)).collect();
    release.send(()).unwrap();
    for ack in acks {
        ack.recv_timeout(PATIENCE).unwrap();
    }
    drop(writer);
    let found = Reader::new(dir.path()).find(&Query::default()).unwrap();
    assert!((4096..6000).contains(&found.len()), "{}", found.len());
}

/// Run by the next test in a process of its own: appends until it is killed and says what it was told is written.
#[test]
fn child_that_appends_until_killed() {
    let Ok(directory) = std::env::var("HISTORY_TEST_DIRECTORY") else { return };
    let writer = Writer::open(Path::new(&directory), Bounds::default()).unwrap();
    let mut stdout = std::io::stdout().lock();
    for number in 0.. {
        append(&writer, number).recv_timeout(PATIENCE).unwrap();
        writeln!(stdout, "\nwritten {number}").unwrap();
    }
}

#[test]
fn what_was_reported_as_written_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = 0;
    for _round in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child_that_appends_until_killed", "--exact", "--nocapture"])
            .env("HISTORY_TEST_DIRECTORY", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let written = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("written ")?.parse::<u64>().ok());
        let last = written.take(200).last().expect("something is written");
        child.kill().unwrap();
        child.wait().unwrap();
        expected = expected.max(last + 1);
        let found = numbers(dir.path(), &Query::default());
        assert!(found.len() as u64 >= expected, "{} of {expected}", found.len());
        assert!((0..=last).all(|number| found.contains(&number)));
    }
}
