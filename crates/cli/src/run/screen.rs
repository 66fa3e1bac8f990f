//! What a run shows: logs on stdout, progress on stderr. Bars on a terminal, lines otherwise, or JSON for programs.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use super::progress::{JobProgress, Progress};
use super::writer::{Stream, Writer};
use crate::log_lines::LogPiece;
use crate::output::tell;

/// Without a terminal a Job's line is repeated this often while it changes.
const LINE_INTERVAL: Duration = Duration::from_secs(2);

/// More bars than this would fill a terminal; the Jobs behind them are summed up in one line.
const BARS_MAX: usize = 10;

/// A bar is this long where there is room for it, and is left out where there is almost none.
const BAR_MAX: usize = 24;
const BAR_MIN: usize = 4;

/// Longer names are cut where there is a bar.
const NAME_MAX: usize = 30;

/// Reasons of one Job that get a line of their own. They may name what no other one does.
const REASONS_MAX: usize = 10;

/// Prefixes of log lines on a terminal.
const CYAN: &str = "\x1b[36m";
const PLAIN: &str = "\x1b[0m";

/// How to show a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// One JSON object a line, on stdout.
    pub(crate) is_json: bool,
    /// No progress.
    pub(crate) is_quiet: bool,
    pub(crate) no_color: bool,
    /// The terminal only knows lines.
    pub(crate) no_bars: bool,
}

/// Where a run is shown.
pub(crate) struct Screen {
    mode: Mode,
    out: Writer,
    /// Colours on stdout.
    has_colours: bool,
    /// Jobs whose end has been told, by position.
    told: Vec<bool>,
    /// What has been told of each Job beside its progress.
    remarks: Vec<Remarks>,
    is_quiet: bool,
}

/// Remarks about a Job that have been made.
#[derive(Debug, Clone, Default)]
struct Remarks {
    failures: usize,
    /// Why pods waited.
    reasons: Vec<String>,
}

impl Remarks {
    /// What is new: why pods failed and, if `with_reasons`, why one waits. Each is told once.
    fn news(&mut self, job: &JobProgress, with_reasons: bool) -> Vec<String> {
        let name = &job.view.name;
        let failures = job.failures().iter().skip(self.failures);
        let mut lines: Vec<String> =
            failures.map(|failure| format!("job/{name}: pod {} failed: {}", failure.pod, failure.why)).collect();
        self.failures = job.failures().len();
        if let Some(why) = job.waiting().filter(|_| with_reasons && self.reasons.len() < REASONS_MAX)
            && !self.reasons.iter().any(|told| told == why)
        {
            self.reasons.push(why.to_owned());
            lines.push(format!("job/{name}: waiting: {why}"));
        }
        lines
    }
}

enum Mode {
    Bars(Bars),
    Lines(Vec<Spoken>),
    Json(Vec<Spoken>),
    Quiet,
}

/// What was last said about a Job.
#[derive(Debug, Clone, Default)]
struct Spoken {
    text: String,
    at: Option<Instant>,
}

struct Bars {
    all: MultiProgress,
    /// The Jobs that have a bar, by position.
    shown: Vec<(usize, ProgressBar)>,
    rest: Option<ProgressBar>,
    /// The longest text so far: bars that move to and fro are hard to read.
    text_max: usize,
    layout: Layout,
}

/// How a line of the terminal is shared out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Layout {
    name: usize,
    bar: usize,
}

impl Layout {
    /// The text comes first: the bar gives way to it, and then the name.
    fn new(columns: usize, name: usize, text: usize) -> Self {
        // A space behind the name, and two brackets and a space around the bar.
        let name = name.min(NAME_MAX).min((columns / 3).max(columns.saturating_sub(text + 1)));
        let bar = columns.saturating_sub(name + text + 4).min(BAR_MAX);
        Self { name, bar: if bar < BAR_MIN { 0 } else { bar } }
    }
}

impl Screen {
    pub(crate) fn new(manner: Manner, jobs: usize) -> Self {
        let mode = match manner {
            Manner { is_json: true, .. } => Mode::Json(vec![Spoken::default(); jobs]),
            Manner { is_quiet: true, .. } => Mode::Quiet,
            _ if io::stderr().is_terminal() && !manner.no_bars => Mode::Bars(Bars::new()),
            _ => Mode::Lines(vec![Spoken::default(); jobs]),
        };
        let has_colours = io::stdout().is_terminal() && !manner.no_color;
        Self {
            out: writer(&mode),
            mode,
            has_colours,
            told: vec![false; jobs],
            remarks: vec![Remarks::default(); jobs],
            is_quiet: manner.is_quiet,
        }
    }

    /// Shows lines of logs, all of them before anything else.
    pub(crate) fn logs(&mut self, pieces: &[LogPiece]) -> io::Result<()> {
        let mut text = Vec::new();
        for piece in pieces {
            match self.mode {
                Mode::Json(_) => json_lines(piece, &mut text),
                _ => prefixed(piece, self.has_colours, &mut text),
            }
        }
        self.print(&text)
    }

    /// Shows how far the Jobs are, and the end of those that have just ended.
    pub(crate) fn progress(&mut self, progress: &Progress, now: Instant) -> io::Result<()> {
        self.remark(progress);
        self.endings(progress, now)?;
        match &mut self.mode {
            Mode::Bars(bars) => bars.draw(progress, now),
            Mode::Lines(spoken) => {
                for (job, said) in progress.jobs().iter().zip(spoken).filter(|(job, _)| job.view.outcome.is_none()) {
                    let text = format!("job/{}: {}", job.view.name, job.counts(now));
                    if said.is_due(&counted(job), now) {
                        tell(&text);
                    }
                }
            }
            // Whoever does not keep up with the logs is not told how far they are.
            Mode::Json(_) if self.is_quiet || self.out.is_behind() => {}
            Mode::Json(spoken) => {
                let mut text = Vec::new();
                for (job, said) in progress.jobs().iter().zip(spoken).filter(|(job, _)| job.view.outcome.is_none()) {
                    if said.is_due(&counted(job), now) {
                        json_line(event("progress", job.json(now)), &mut text);
                    }
                }
                self.print(&text)?;
            }
            Mode::Quiet => {}
        }
        self.out.check()
    }

    /// What people should know about pods, and what neither logs nor counts say.
    fn remark(&mut self, progress: &Progress) {
        // A line has room for the reason; beside a bar it would be cut off.
        let with_reasons = match self.mode {
            Mode::Bars(_) => true,
            Mode::Lines(_) => false,
            Mode::Json(_) | Mode::Quiet => return,
        };
        for (position, job) in progress.jobs().iter().enumerate() {
            for line in self.remarks[position].news(job, with_reasons) {
                self.tell_behind_logs(&line);
            }
        }
    }

    fn endings(&mut self, progress: &Progress, now: Instant) -> io::Result<()> {
        for (position, job) in progress.jobs().iter().enumerate() {
            if job.view.outcome.is_none() || std::mem::replace(&mut self.told[position], true) {
                continue;
            }
            match &mut self.mode {
                Mode::Bars(bars) => {
                    bars.end(position);
                    self.tell_behind_logs(&job.ending(now));
                }
                Mode::Lines(_) => self.tell_behind_logs(&job.ending(now)),
                Mode::Json(_) if self.is_quiet => {}
                Mode::Json(_) => {
                    let mut text = Vec::new();
                    json_line(event("finished", job.json(now)), &mut text);
                    self.print(&text)?;
                }
                Mode::Quiet => {}
            }
        }
        Ok(())
    }

    /// A line for people about something that was preceded by logs.
    fn tell_behind_logs(&mut self, line: &str) {
        if self.out.push(Stream::Stderr, format!("{line}\n").as_bytes()).is_err() {
            tell(line);
        }
    }

    /// Something that must be told, however little is shown.
    pub(crate) fn warn(&mut self, line: &str) {
        self.tell_behind_logs(line);
    }

    /// Something that people should know; programs are not told.
    pub(crate) fn note(&self, text: &str) {
        match &self.mode {
            Mode::Bars(bars) => bars.all.suspend(|| tell(text)),
            Mode::Lines(_) => tell(text),
            Mode::Json(_) | Mode::Quiet => {}
        }
    }

    /// The last object for programs.
    pub(crate) fn summary(&mut self, summary: Value) -> io::Result<()> {
        if !matches!(self.mode, Mode::Json(_)) {
            return Ok(());
        }
        let mut text = Vec::new();
        json_line(event("summary", summary), &mut text);
        self.print(&text)
    }

    pub(crate) fn is_json(&self) -> bool {
        matches!(self.mode, Mode::Json(_))
    }

    /// Takes the bars away.
    pub(crate) fn clear(&mut self) {
        if let Mode::Bars(bars) = &mut self.mode {
            let _ = bars.all.clear();
        }
    }

    fn print(&mut self, text: &[u8]) -> io::Result<()> {
        if text.is_empty() { Ok(()) } else { self.out.push(Stream::Stdout, text) }
    }

    /// Nobody reads as fast as there is something to show; whoever can should wait with more.
    pub(crate) fn is_behind(&self) -> bool {
        self.out.is_behind()
    }

    /// Ready when a part of what waits is on its way. Loses nothing if it is dropped.
    pub(crate) async fn advance(&mut self) -> io::Result<()> {
        self.out.advance().await
    }

    /// Ready when everything has been written.
    pub(crate) async fn drain(&mut self) -> io::Result<()> {
        self.out.drain().await
    }
}

/// Bars stand on the terminal that lines are written to; they step aside for them.
fn writer(mode: &Mode) -> Writer {
    let bars = match mode {
        Mode::Bars(bars) => Some(bars.all.clone()),
        _ => None,
    };
    let shares_terminal = io::stdout().is_terminal();
    Writer::new(move |stream, text| {
        let write = || match stream {
            Stream::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(text)?;
                stdout.flush()
            }
            Stream::Stderr => {
                // Nobody may be reading it, which changes nothing about the work.
                let _ = io::stderr().lock().write_all(text);
                Ok(())
            }
        };
        match &bars {
            // A pipe that nobody reads must not keep the bars from being drawn.
            Some(bars) if shares_terminal || stream == Stream::Stderr => bars.suspend(write),
            _ => write(),
        }
    })
}

impl Spoken {
    /// Whether there is something new to say, and it is time to.
    fn is_due(&mut self, text: &str, now: Instant) -> bool {
        let is_due = self.text != text && self.at.is_none_or(|at| now.duration_since(at) >= LINE_INTERVAL);
        if is_due {
            *self = Self { text: text.to_owned(), at: Some(now) };
        }
        is_due
    }
}

/// What makes a line worth repeating: counts do, and what keeps pods waiting; rates change by themselves.
fn counted(job: &JobProgress) -> String {
    let view = &job.view;
    let waiting = job.waiting().unwrap_or_default();
    format!("{} {} {} {} {waiting}", view.succeeded, view.failed, view.active, view.terminating)
}

impl Bars {
    fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        Self { all, shown: Vec::new(), rest: None, text_max: 0, layout: Layout::default() }
    }

    fn draw(&mut self, progress: &Progress, now: Instant) {
        let has_bar = |bars: &Self, position: usize| bars.shown.iter().any(|(shown, _)| *shown == position);
        self.lay_out(progress, now);
        for (position, job) in progress.jobs().iter().enumerate() {
            if self.shown.len() >= BARS_MAX {
                break;
            }
            if job.view.outcome.is_none() && !has_bar(self, position) {
                // Drawn for the first time when it has something to show.
                let total = job.view.completions.map(u64::from);
                let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
                bar.set_style(style(self.layout, total.is_some()));
                bar.set_prefix(job.view.name.clone());
                bar.set_message(job.brief(now));
                let bar = self.all.insert(self.shown.len(), bar);
                self.shown.push((position, bar));
            }
        }
        for (position, bar) in &self.shown {
            let job = &progress.jobs()[*position];
            bar.set_position(job.view.succeeded.into());
            bar.set_message(job.brief(now));
        }
        self.draw_rest(progress);
    }

    /// Texts become longer, and terminals are made smaller.
    fn lay_out(&mut self, progress: &Progress, now: Instant) {
        let unfinished = progress.jobs().iter().filter(|job| job.view.outcome.is_none()).take(BARS_MAX);
        let text = unfinished.map(|job| job.brief(now).len()).max().unwrap_or_default();
        self.text_max = self.text_max.max(text);
        let name = progress.jobs().iter().map(|job| job.view.name.len()).max().unwrap_or_default();
        let layout = Layout::new(columns(), name, self.text_max);
        if layout != self.layout {
            self.layout = layout;
            for (_, bar) in &self.shown {
                bar.set_style(style(layout, bar.length().is_some()));
            }
        }
    }

    fn draw_rest(&mut self, progress: &Progress) {
        let unfinished = progress.jobs().iter().filter(|job| job.view.outcome.is_none()).count();
        let hidden = unfinished.saturating_sub(self.shown.len());
        match (hidden, &self.rest) {
            (0, None) => {}
            (0, Some(bar)) => {
                bar.finish_and_clear();
                self.rest = None;
            }
            (_, Some(bar)) => bar.set_message(format!("and {hidden} more Jobs")),
            (_, None) => {
                let bar = self.all.add(ProgressBar::new_spinner());
                bar.set_style(ProgressStyle::with_template("{msg}").expect("a template that is right"));
                bar.set_message(format!("and {hidden} more Jobs"));
                self.rest = Some(bar);
            }
        }
    }

    /// The Job's bar goes away, for a line that stays.
    fn end(&mut self, position: usize) {
        if let Some(found) = self.shown.iter().position(|(shown, _)| *shown == position) {
            let (_, bar) = self.shown.remove(found);
            bar.finish_and_clear();
            self.all.remove(&bar);
        }
    }
}

/// The width of the terminal that bars are drawn on.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stderr());
    size.ok().map(|size| size.ws_col.into()).filter(|columns| *columns > 0).unwrap_or(80)
}

fn style(layout: Layout, has_total: bool) -> ProgressStyle {
    let Layout { name, bar } = layout;
    let template = if has_total && bar > 0 {
        format!("{{prefix:{name}!}} [{{bar:{bar}}}] {{wide_msg}}")
    } else {
        format!("{{prefix:{name}!}} {{wide_msg}}")
    };
    ProgressStyle::with_template(&template).expect("a template that is right").progress_chars("#>-")
}

fn prefixed(piece: &LogPiece, has_colours: bool, text: &mut Vec<u8>) {
    let prefix = piece.origin.prefix();
    let prefix = if has_colours { format!("{CYAN}{prefix}{PLAIN}") } else { prefix };
    piece.write(Some(&prefix), text);
}

fn json_lines(piece: &LogPiece, text: &mut Vec<u8>) {
    let origin = &piece.origin;
    for line in piece.lines() {
        let value = json!({
            "type": "log", "namespace": origin.namespace, "job": origin.job, "pod": origin.pod, "index": origin.index,
            "container": origin.container, "line": String::from_utf8_lossy(line),
        });
        json_line(value, text);
    }
}

fn event(kind: &str, value: Value) -> Value {
    let mut event = json!({ "type": kind });
    if let (Some(event), Value::Object(members)) = (event.as_object_mut(), value) {
        event.extend(members);
    }
    event
}

fn json_line(value: Value, text: &mut Vec<u8>) {
    text.extend_from_slice(value.to_string().as_bytes());
    text.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::job_view::JobView;
    use crate::log_lines::LogOrigin;
    use crate::pod_view::PodObject;

    fn piece(lines: &[u8]) -> LogPiece {
        let origin = LogOrigin {
            namespace: "default".to_owned(),
            job: "j".to_owned(),
            pod: "j-0-x".to_owned(),
            index: Some(0),
            label: "0".to_owned(),
            container: "c".to_owned(),
            names_container: false,
        };
        LogPiece { origin: Arc::new(origin), lines: lines.to_vec() }
    }

    #[test]
    fn every_line_has_its_prefix() {
        let mut text = Vec::new();
        prefixed(&piece(b"a\n\nb\n"), false, &mut text);
        assert_eq!(String::from_utf8_lossy(&text), "[j/0] a\n[j/0] \n[j/0] b\n");
        text.clear();
        prefixed(&piece(b"a\n"), true, &mut text);
        assert_eq!(String::from_utf8_lossy(&text), "\x1b[36m[j/0]\x1b[0m a\n");
    }

    #[test]
    fn programs_get_an_object_a_line() {
        let mut text = Vec::new();
        json_lines(&piece(b"a \xff\n"), &mut text);
        let value: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!((&value["type"], &value["index"], &value["line"]), (&json!("log"), &json!(0), &json!("a \u{fffd}")));
    }

    #[test]
    fn the_bar_gives_way_to_the_text() {
        let text = "3/10 done, 2 active, 1.5/s, ETA 5s".len();
        assert_eq!(Layout::new(80, 6, text), Layout { name: 6, bar: 24 });
        assert_eq!(Layout::new(60, 6, text), Layout { name: 6, bar: 16 });
        assert_eq!(Layout::new(45, 6, text), Layout { name: 6, bar: 0 });
        assert_eq!(Layout::new(20, 6, text), Layout { name: 6, bar: 0 });
        assert_eq!(Layout::new(20, 40, text), Layout { name: 6, bar: 0 });
        assert_eq!(Layout::new(80, 40, text), Layout { name: 30, bar: 12 });
    }

    /// The reason for which a pod waits is longer than a line with a bar in it.
    #[test]
    fn reasons_and_failures_are_told_once() {
        let view = JobView { uid: "u".to_owned(), name: "j".to_owned(), ..JobView::default() };
        let mut progress = Progress::new([view], Instant::now());
        let pod = |name: &str, status: Value| -> PodObject {
            let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true});
            let metadata = json!({"uid": name, "name": name, "ownerReferences": [owner]});
            serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
        };
        let waits = json!({"phase": "Pending", "containerStatuses": [
            {"name": "c", "state": {"waiting": {"reason": "CreateContainerConfigError", "message": "no x"}}}]});
        progress.pod_changed(&pod("j-a", waits));
        progress
            .pod_changed(&pod("j-b", json!({"phase": "Failed", "reason": "CommandRequired", "message": "say one"})));
        let (mut remarks, failed) = (Remarks::default(), "job/j: pod j-b failed: CommandRequired: say one");
        assert_eq!(remarks.news(&progress.jobs()[0], false), [failed], "a line of progress has the reason");
        let mut remarks = Remarks::default();
        let waiting = "job/j: waiting: CreateContainerConfigError: no x";
        assert_eq!(remarks.news(&progress.jobs()[0], true), [failed, waiting]);
        assert_eq!(remarks.news(&progress.jobs()[0], true), [""; 0]);
        assert!(progress.jobs()[0].brief(Instant::now()).ends_with(", waiting"));
    }

    #[test]
    fn lines_are_repeated_when_counts_have_changed_and_not_too_often() {
        let (begin, mut spoken) = (Instant::now(), Spoken::default());
        assert!(spoken.is_due("1", begin));
        assert!(!spoken.is_due("2", begin + Duration::from_secs(1)));
        assert!(spoken.is_due("2", begin + Duration::from_secs(2)));
        assert!(!spoken.is_due("2", begin + Duration::from_secs(9)));
    }
}
