//! The nursery's loop: requests, exits, output, one thread.
//!
//! Everything it waits for is a file descriptor in one epoll set: the socket, a pidfd and a pipe for each process. It
//! must stay single-threaded, see `process::prepare_child`.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::connection::Connection;
use super::control_group::{ControlGroup, ControlGroups};
use super::isolation::{self, Isolation};
use super::journal::Journal;
use super::layout::Layout;
use super::memory_watch::{MemoryWatch, Offender};
use super::process::{self, Process, Start};
use super::process_watch::ProcessWatch;
use super::protocol::{
    Abilities, Cause, End, Exec, ExecOutcome, InstanceId, Known, Launch, Mount, Obstacles, Report, Request, Welcome,
};
use super::task::{Container, OUTPUT_CHUNK, Purpose, Task};
use super::work::{WorkDirectories, WorkDirectory};
use crate::logs::{ContainerLogs, LogWriter, tail_text};

const LISTENER: u64 = 0;
const CONNECTION: u64 = 1;
/// Numbers from here on belong to processes, two to each.
const FIRST_TASK: u64 = 2;

/// What a pipe can hold when its writer ends, several times over.
const LAST_OUTPUT_MAX: usize = 1 << 20;
const LOG_TAIL_LINES: u64 = 80;
const LOG_TAIL_BYTES: usize = 2048;
/// How often children that nobody knows are looked for while there are any.
const STRAY_INTERVAL: Duration = Duration::from_secs(1);
/// How often it is tried to write while that fails, if there is nothing new to be written.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// What a server is made from.
pub(super) struct Settings {
    pub(super) layout: Layout,
    pub(super) journal: Journal,
    pub(super) listener: UnixListener,
    pub(super) abilities: Abilities,
    pub(super) obstacles: Obstacles,
    pub(super) control_groups: Option<ControlGroups>,
    pub(super) work: WorkDirectories,
}

pub(super) struct Server {
    layout: Layout,
    journal: Journal,
    epoll: OwnedFd,
    listener: UnixListener,
    connection: Option<Connection>,
    /// What the node is to be told, as soon as the journal has it.
    reports: Vec<Report>,
    /// The disk takes nothing.
    stall: Option<Stall>,
    tasks: HashMap<u64, Task>,
    instances: HashMap<InstanceId, u64>,
    pids: HashSet<Pid>,
    next_task: u64,
    /// Orders that nothing was done about yet.
    starts: Vec<Launch>,
    abilities: Abilities,
    obstacles: Obstacles,
    control_groups: Option<ControlGroups>,
    work: WorkDirectories,
    /// Only containers that have no control group.
    memory_watch: MemoryWatch,
    process_watch: ProcessWatch,
    /// Children may have been left behind.
    strays: bool,
}

/// The last attempt to write failed.
struct Stall {
    next_try: Instant,
    /// How much there was to write. If it is something else now, it is tried at once.
    backlog: usize,
    /// What the first attempt met with, for people.
    remark: String,
}

impl Server {
    pub(super) fn new(settings: Settings) -> io::Result<Self> {
        let Settings { layout, journal, listener, abilities, obstacles, control_groups, work } = settings;
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        Ok(Self {
            layout,
            journal,
            epoll,
            listener,
            connection: None,
            reports: Vec::new(),
            stall: None,
            tasks: HashMap::new(),
            instances: HashMap::new(),
            pids: HashSet::new(),
            next_task: FIRST_TASK,
            starts: Vec::new(),
            abilities,
            obstacles,
            control_groups,
            work,
            memory_watch: MemoryWatch::default(),
            process_watch: ProcessWatch::default(),
            strays: true,
        })
    }

    /// Serves until nobody is connected and nothing runs.
    pub(super) fn run(mut self, first: Option<UnixStream>) -> io::Result<()> {
        if let Some(first) = first {
            self.connect(first)?;
        }
        let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
        loop {
            events.clear();
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                self.dispatch(event.data.u64())?;
            }
            self.start_all();
            self.time_out();
            self.watch_memory();
            self.watch_processes();
            self.collect_strays();
            self.write_journal();
            self.send();
            let has_unwritten = self.journal.unwritten() > 0;
            if self.connection.is_none() && self.tasks.is_empty() && !self.strays && !has_unwritten {
                return Ok(());
            }
        }
    }

    fn timeout(&self) -> Option<Timespec> {
        let now = Instant::now();
        let deadline = self.tasks.values().filter_map(|task| match &task.purpose {
            Purpose::Exec { deadline, timed_out: false, .. } => Some(deadline.saturating_duration_since(now)),
            _ => None,
        });
        let stray = self.strays.then_some(STRAY_INTERVAL);
        let retry = self.stall.as_ref().filter(|_| self.backlog() > 0);
        let retry = retry.map(|stall| stall.next_try.saturating_duration_since(now));
        let looks = self.memory_watch.wait(now).into_iter().chain(self.process_watch.wait(now));
        let wait = deadline.chain(stray).chain(retry).chain(looks).min()?;
        Timespec::try_from(wait + Duration::from_millis(1)).ok()
    }

    fn dispatch(&mut self, event: u64) -> io::Result<()> {
        match event {
            LISTENER => self.accept(),
            CONNECTION => {
                self.receive();
                Ok(())
            }
            event if event.is_multiple_of(2) => self.exited(event),
            event => {
                self.read_output(event - 1, OUTPUT_CHUNK);
                Ok(())
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        match self.listener.accept() {
            Ok((stream, _)) => self.connect(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The node that connects last is the one that counts: there is only one.
    fn connect(&mut self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        if let Some(old) = self.connection.take() {
            let _ = epoll::delete(&self.epoll, old.stream());
        }
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(CONNECTION), flags)?;
        self.connection = Some(Connection::new(stream));
        self.welcome();
        Ok(())
    }

    /// What the journal may still forget is told later, like any other news.
    fn welcome(&mut self) {
        self.reports.clear();
        // It is not told of these, so it orders what it still wants.
        self.starts.clear();
        let (mut instances, mut ends) = (Vec::new(), Vec::new());
        for (id, entry) in self.journal.entries() {
            let (told, later) = match self.journal.has_unwritten_end(id) {
                true => (None, entry.end.clone()),
                false => (entry.end.clone(), None),
            };
            instances.push(Known { id: id.clone(), started_at: entry.started_at, end: told });
            ends.extend(later.map(|end| Report::Exited { id: id.clone(), end }));
        }
        let welcome = Welcome { instances, abilities: self.abilities, obstacles: self.obstacles.clone() };
        self.report(Report::Welcome(welcome));
        ends.into_iter().for_each(|end| self.report(end));
        if let (Some(stall), Some(connection)) = (&self.stall, &mut self.connection) {
            connection.remark(&stall.remark);
        }
    }

    fn disconnect(&mut self) {
        self.reports.clear();
        if let Some(old) = self.connection.take() {
            let _ = epoll::delete(&self.epoll, old.stream());
        }
    }

    fn report(&mut self, report: Report) {
        // Without a node nothing is lost: the journal has it, and the next node is welcomed with it.
        if self.connection.is_some() {
            self.reports.push(report);
        }
    }

    /// Nobody is told of an end that could be forgotten.
    fn send(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let is_held = |report: &mut Report| match report {
            Report::NotStarted { id, .. } | Report::Exited { id, .. } => self.journal.has_unwritten_end(id),
            Report::Welcome(_) | Report::Started { .. } | Report::ExecFinished { .. } => false,
        };
        let is_open = self.reports.extract_if(.., |report| !is_held(report)).all(|report| connection.queue(&report));
        if !(is_open && connection.send()) {
            self.disconnect();
        }
    }

    /// Says what concerns no instance to whoever looks after this machine.
    fn remark(&mut self, remark: &str) {
        super::complain(remark);
        if let Some(connection) = &mut self.connection
            && !connection.remark(remark)
        {
            self.disconnect();
        }
    }

    /// How much there is to write, in whatever measure.
    fn backlog(&self) -> usize {
        self.journal.unwritten() + self.starts.len()
    }

    /// A disk that takes nothing is not tried again by every turn of the loop.
    fn may_write(&self) -> bool {
        let is_due = |stall: &Stall| Instant::now() >= stall.next_try || stall.backlog != self.backlog();
        self.stall.as_ref().is_none_or(is_due)
    }

    fn write_journal(&mut self) {
        if self.journal.unwritten() > 0 && self.may_write() {
            let written = self.journal.write();
            self.note(written);
        }
    }

    /// A full disk must not cost the containers (PL-3.5): they go on, and what there is to write waits.
    fn note(&mut self, written: io::Result<()>) {
        match written {
            // With orders waiting it is not over yet, though a record may have found room.
            Ok(()) if !self.starts.is_empty() => {}
            Ok(()) => {
                if self.stall.take().is_some() {
                    self.remark("the node's directory can be written again");
                }
            }
            Err(error) => self.stalled(&error),
        }
    }

    fn stalled(&mut self, error: &io::Error) {
        let (next_try, backlog) = (Instant::now() + RETRY_INTERVAL, self.backlog());
        if let Some(stall) = &mut self.stall {
            (stall.next_try, stall.backlog) = (next_try, backlog);
            return;
        }
        let remark = format!(
            "the node's directory cannot be written: {error}; containers go on, but no others are started and no ends are \
             told until it can"
        );
        self.remark(&remark);
        self.stall = Some(Stall { next_try, backlog, remark });
    }

    fn receive(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let (requests, is_open) = connection.receive();
        for request in requests {
            self.handle(request);
        }
        if !is_open {
            self.disconnect();
        }
    }

    fn handle(&mut self, request: Request) {
        match request {
            Request::Start(launch) => self.take_start(*launch),
            Request::Terminate(id) => self.signal(&id, Signal::TERM),
            Request::Kill(id) => self.kill(&id),
            Request::Exec(exec) => self.exec(*exec),
            Request::Forget(ids) => ids.iter().for_each(|id| self.journal.forget(id)),
        }
    }

    /// Starts are gathered so that one sync of the journal serves all that came together.
    fn take_start(&mut self, launch: Launch) {
        let id = &launch.id;
        match self.journal.get(id) {
            None if self.starts.iter().any(|start| start.id == *id) => {}
            None => self.starts.push(launch),
            // Asked again by a node that did not hear the answer.
            Some(entry) => {
                let (started_at, end) = (entry.started_at, entry.end.clone());
                let id = id.clone();
                if let Some(at) = started_at {
                    self.report(Report::Started { id: id.clone(), at });
                }
                if let Some(end) = end {
                    self.report(Report::Exited { id, end });
                }
            }
        }
    }

    /// What needs the disk comes first. While that takes nothing the orders wait: a start that is not on disk could be
    /// repeated (INV-49), and no fault of the container's shall be its end (PL-15).
    fn start_all(&mut self) {
        if self.starts.is_empty() || !self.may_write() {
            return;
        }
        let starts = std::mem::take(&mut self.starts);
        let directories = starts.iter().filter(|launch| launch.directory.is_none()).count();
        let ids = starts.iter().map(|launch| &launch.id);
        if let Err(error) = self.work.reserve(directories).and_then(|()| self.journal.starting(ids)) {
            self.starts = starts;
            return self.stalled(&error);
        }
        self.note(Ok(()));
        for launch in starts {
            let id = launch.id.clone();
            if let Err(message) = self.start(launch) {
                self.not_started(&id, message);
            }
        }
    }

    fn start(&mut self, launch: Launch) -> Result<(), String> {
        self.remove_old_logs(&launch);
        let id = launch.id.clone();
        let log = LogWriter::new(&id.pod, &id.container, id.attempt, launch.log);
        let mut container = Container { launch, log, control_group: None, work: None };
        let started = self.start_process(&mut container);
        let at = Timestamp::now();
        let started = match started {
            Ok(started) => started,
            Err(message) => {
                self.put_away(container);
                return Err(message);
            }
        };
        let pid = started.pid;
        let watched_limit = container.launch.limits.memory_bytes.filter(|_| container.control_group.is_none());
        let processes_max = container.launch.processes_max.filter(|_| self.control_groups.is_none());
        let task = self
            .add(started, Purpose::Container(Box::new(container)), at)
            .map_err(|error| format!("watch the process: {error}"))?;
        self.instances.insert(id.clone(), task);
        if let Some(limit_bytes) = watched_limit {
            self.memory_watch.add(&id, pid, limit_bytes);
        }
        if let Some(processes_max) = processes_max {
            self.process_watch.add(&id, pid, processes_max);
        }
        if let Some(key) = process::identify(pid) {
            self.journal.started(&id, key, at);
        }
        self.report(Report::Started { id, at });
        Ok(())
    }

    fn start_process(&mut self, container: &mut Container) -> Result<Process, String> {
        if container.launch.directory.is_none() {
            container.work = Some(self.work_directory(&container.launch)?);
        }
        if let Some(groups) = &self.control_groups
            && !container.launch.limits.is_empty()
        {
            let group = groups.create(&container.launch.id, container.launch.limits);
            container.control_group = Some(group.map_err(|error| format!("set limits: {error}"))?);
        }
        self.show_work(container);
        let launch = &container.launch;
        let mut isolation = Isolation::default()
            .with_user(launch.user, launch.group, &launch.groups)
            .with_control_group(container.control_group.as_ref().map(ControlGroup::processes).transpose()?)
            .in_directory(container.directory(), launch.directory.is_none());
        if !launch.mounts.is_empty() {
            isolation = isolation.with_mounts(&self.layout.new_root(), &launch.hostname, &launch.mounts)?;
        }
        let Launch { id, command, program_shown, environment, .. } = launch;
        process::start(Start { id, command, program_shown, environment, isolation })
    }

    fn work_directory(&mut self, launch: &Launch) -> Result<WorkDirectory, String> {
        let failed = |error| format!("make a working directory: {error}");
        let work = self.work.take().map_err(failed)?;
        if launch.user.is_some() || launch.group.is_some() {
            std::os::unix::fs::chown(work.path(), launch.user, launch.group).map_err(failed)?;
        }
        Ok(work)
    }

    /// Another user cannot use the path of a working directory: it leads through directories that only ours may enter.
    /// They stay closed; the container sees its own at another place.
    fn show_work(&self, container: &mut Container) {
        if let (Some(work), Some(_), true) = (&container.work, container.launch.user, self.abilities.mounts) {
            let (source, target) = (work.path().to_owned(), PathBuf::from(isolation::WORK));
            container.launch.directory = Some(target.clone());
            container.launch.mounts.push(Mount { source, sub_path: None, target, read_only: false });
        }
    }

    fn put_away(&mut self, container: Container) {
        if let Some(group) = container.control_group {
            group.remove();
        }
        if let Some(work) = container.work {
            self.work.give_back(work);
        }
    }

    /// Only the logs of the current and the previous instance are kept (PL-124).
    fn remove_old_logs(&self, launch: &Launch) {
        let Some(attempt) = launch.id.attempt.checked_sub(2) else { return };
        let old = ContainerLogs::open(&self.layout.logs(), &launch.id.pod, &launch.id.container, attempt);
        if let Ok(Some(old)) = old {
            let _ = old.remove(launch.log.files_max);
        }
    }

    fn not_started(&mut self, id: &InstanceId, message: String) {
        let at = Timestamp::now();
        let end = End::not_started(message.clone(), at);
        self.journal.ended(id, &end);
        self.report(Report::NotStarted { id: id.clone(), message, at });
    }

    fn add(&mut self, process: Process, purpose: Purpose, started_at: Timestamp) -> io::Result<u64> {
        let task = self.next_task;
        self.next_task += 2;
        let Process { pid, handle, output } = process;
        let read = epoll::EventFlags::IN;
        let watched = epoll::add(&self.epoll, &handle, epoll::EventData::new_u64(task), read)
            .and_then(|()| epoll::add(&self.epoll, &output, epoll::EventData::new_u64(task + 1), read));
        if let Err(error) = watched {
            // Nobody would notice its end. What is left of it is a stray.
            let _ = kill_process_group(pid, Signal::KILL);
            self.strays = true;
            return Err(error.into());
        }
        self.pids.insert(pid);
        self.tasks.insert(task, Task { purpose, pid, handle, output: Some(output), started_at });
        Ok(task)
    }

    fn exec(&mut self, exec: Exec) {
        let token = exec.token;
        if let Err(message) = self.try_exec(exec) {
            self.report(Report::ExecFinished { token, outcome: ExecOutcome::Failed(message) });
        }
    }

    fn try_exec(&mut self, exec: Exec) -> Result<(), String> {
        let task = self.instances.get(&exec.id).and_then(|task| self.tasks.get(task));
        let Some(Task { purpose: Purpose::Container(container), handle, .. }) = task else {
            return Err("the container does not run".to_owned());
        };
        let launch = &container.launch;
        let mut isolation = Isolation::default()
            .with_user(launch.user, launch.group, &launch.groups)
            .in_directory(container.directory(), launch.directory.is_none());
        if !launch.mounts.is_empty() {
            isolation = isolation.beside(handle.try_clone().map_err(|error| error.to_string())?)?;
        }
        // Commands of probes and hooks are not expanded, so they hold no secrets.
        let program_shown = exec.command.first().map_or("", String::as_str);
        let Exec { id, command, .. } = &exec;
        let start = Start { id, command, program_shown, environment: &launch.environment, isolation };
        let started = process::start(start)?;
        let deadline = Instant::now() + Duration::from_millis(exec.timeout_millis);
        let Exec { id, token, .. } = exec;
        let purpose = Purpose::Exec { id, token, deadline, timed_out: false, output: Vec::new() };
        self.add(started, purpose, Timestamp::now()).map_err(|error| error.to_string())?;
        Ok(())
    }

    fn time_out(&mut self) {
        let now = Instant::now();
        for task in self.tasks.values_mut() {
            if let Purpose::Exec { deadline, timed_out, .. } = &mut task.purpose
                && !*timed_out
                && now >= *deadline
            {
                *timed_out = true;
                let _ = kill_process_group(task.pid, Signal::KILL);
            }
        }
    }

    /// Kills containers that have more memory than they may. Their ends say so, as soon as they are there.
    fn watch_memory(&mut self) {
        for Offender { id, family } in self.memory_watch.look(&self.pids) {
            self.kill(&id);
            process::signal_marked(&family, &id, Signal::KILL);
        }
    }

    /// Kills containers that have more processes than they may.
    fn watch_processes(&mut self) {
        for id in self.process_watch.look(&self.pids) {
            self.kill(&id);
            self.strays = true;
            self.remark(&format!("container `{id}` has too many processes and is killed"));
        }
    }

    /// The group exists as long as its leader has not been waited for, so its number is right.
    fn signal(&self, id: &InstanceId, signal: Signal) {
        if let Some(task) = self.instances.get(id).and_then(|task| self.tasks.get(task)) {
            let _ = kill_process_group(task.pid, signal);
        }
    }

    fn kill(&self, id: &InstanceId) {
        self.signal(id, Signal::KILL);
        let task = self.instances.get(id).and_then(|task| self.tasks.get(task));
        if let Some(Task { purpose: Purpose::Container(container), .. }) = task
            && let Some(group) = &container.control_group
        {
            group.kill();
        }
    }

    fn read_output(&mut self, task: u64, bytes_max: usize) {
        let Some(task) = self.tasks.get_mut(&task) else { return };
        if !task.read_output(&self.layout, bytes_max)
            && let Some(output) = task.output.take()
        {
            let _ = epoll::delete(&self.epoll, output.as_fd());
        }
    }

    fn exited(&mut self, number: u64) -> io::Result<()> {
        let Some(task) = self.tasks.get(&number) else { return Ok(()) };
        // First the rest of its group, while its number cannot belong to anybody else (INV-49).
        let _ = kill_process_group(task.pid, Signal::KILL);
        let Some(status) = process::reap(task.pid)? else { return Ok(()) };
        self.read_output(number, LAST_OUTPUT_MAX);
        let Some(mut task) = self.tasks.remove(&number) else { return Ok(()) };
        self.pids.remove(&task.pid);
        self.strays = true;
        let _ = epoll::delete(&self.epoll, task.handle.as_fd());
        if let Some(output) = task.output.take() {
            let _ = epoll::delete(&self.epoll, output.as_fd());
        }
        let cause = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Cause::Code(code),
            (None, Some(signal)) => Cause::Signal(signal),
            (None, None) => Cause::Unseen,
        };
        match task.purpose {
            Purpose::Exec { token, timed_out, output, .. } => {
                let output = String::from_utf8_lossy(&output).into_owned();
                let outcome = match (timed_out, cause) {
                    (true, _) => ExecOutcome::TimedOut { output },
                    (false, Cause::Code(code)) => ExecOutcome::Exited { code, output },
                    (false, Cause::Signal(signal)) => ExecOutcome::Exited { code: 128 + signal, output },
                    (false, _) => ExecOutcome::Exited { code: 137, output },
                };
                self.report(Report::ExecFinished { token, outcome });
            }
            Purpose::Container(container) => self.container_exited(*container, cause, task.started_at),
        }
        Ok(())
    }

    fn container_exited(&mut self, mut container: Container, cause: Cause, started_at: Timestamp) {
        let finished_at = Timestamp::now();
        let _ = container.log.finish(&self.layout.logs(), finished_at);
        let launch = &container.launch;
        self.instances.remove(&launch.id);
        self.end_commands_beside(&launch.id);
        let had_too_many = self.process_watch.remove(&launch.id);
        let was_out_of_memory = self.memory_watch.remove(&launch.id)
            || container.control_group.as_ref().is_some_and(ControlGroup::was_out_of_memory);
        let end = End {
            cause: if was_out_of_memory && cause == Cause::Signal(9) { Cause::OutOfMemory } else { cause },
            started_at: Some(started_at),
            finished_at,
            // Its last words were written before it was known that they are.
            message: had_too_many.or_else(|| launch.termination_message.as_deref().and_then(super::read_message)),
            log_tail: match launch.wants_log_tail && cause != Cause::Code(0) {
                true => self.log_tail(&launch.id),
                false => None,
            },
        };
        let id = launch.id.clone();
        self.put_away(container);
        self.journal.ended(&id, &end);
        self.report(Report::Exited { id, end });
    }

    /// Probes and hooks do not outlive what they are about.
    fn end_commands_beside(&self, ended: &InstanceId) {
        let beside = |task: &&Task| matches!(&task.purpose, Purpose::Exec { id, .. } if id == ended);
        for task in self.tasks.values().filter(beside) {
            let _ = kill_process_group(task.pid, Signal::KILL);
        }
    }

    fn log_tail(&self, id: &InstanceId) -> Option<String> {
        let files = ContainerLogs::open(&self.layout.logs(), &id.pod, &id.container, id.attempt).ok()??;
        tail_text(&files, LOG_TAIL_LINES, LOG_TAIL_BYTES).ok()
    }

    /// Ends processes that left their group and outlived their container. The nursery inherits them, so their numbers
    /// stay taken until it has waited for them.
    fn collect_strays(&mut self) {
        if !self.strays {
            return;
        }
        let Ok(children) = process::children() else { return };
        let mut are_left = false;
        for pid in children.into_iter().filter(|pid| !self.pids.contains(pid)) {
            if matches!(process::reap(pid), Ok(Some(_))) {
                continue;
            }
            are_left = true;
            let owner = process::instance_of(pid);
            let owner_runs = match &owner {
                Some(owner) => self.instances.keys().any(|id| id.to_string() == *owner),
                // It hides where it comes from: as long as anything runs it may belong to that.
                None => !self.instances.is_empty(),
            };
            if !owner_runs {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        self.strays = are_left;
    }
}
