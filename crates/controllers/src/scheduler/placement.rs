//! Which pod goes where: pure bookkeeping and choice, no clock and no IO.
//!
//! Pods wait in one line per [`Class`], oldest first. If the first of a line fits nowhere, nobody behind it does either:
//! the whole line is set aside until a node changes or gets room. So the work grows with the pods that are placed and the
//! number of different classes, not with the number of pods that wait.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use super::class::Class;
use super::node::{self, Obstacle, Offer, Usage};

/// A pod by its uid.
pub(crate) type Uid = Arc<str>;

/// What the API says about a pod that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct PodFacts {
    pub(crate) uid: Uid,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) created: Timestamp,
    pub(crate) class: Class,
    /// Empty if it waits for one.
    pub(crate) node: Arc<str>,
    /// It is this scheduler's to place: no gates, not being deleted, the right scheduler's name.
    pub(crate) is_ours: bool,
}

/// A decision to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) pod: Identity,
    pub(crate) node: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: Uid,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

/// Somebody should be told that a pod cannot go anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub(crate) pod: Identity,
    pub(crate) message: Arc<str>,
}

#[derive(Debug, Default)]
pub(crate) struct Placement {
    nodes: BTreeMap<Arc<str>, Offer>,
    /// By node, whether the Node exists or not.
    usage: HashMap<Arc<str>, Usage>,
    pods: HashMap<Uid, Pod>,
    lines: BTreeMap<Arc<Class>, Line>,
    /// Lines that may have a pod to place, by whose turn it is.
    ready: BTreeSet<Turn>,
    /// Nodes that got room since lines were last looked at.
    roomier: BTreeSet<Arc<str>>,
    /// Somebody may wait without knowing why.
    has_untold: bool,
    next_number: u64,
}

#[derive(Debug)]
struct Pod {
    namespace: Arc<str>,
    name: Arc<str>,
    class: Arc<Class>,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// In the line of its class.
    Waiting(Ticket),
    /// A binding is under way; it counts as if it were there.
    Assumed(Arc<str>),
    Bound(Arc<str>),
    /// Not ours, and on no node.
    Elsewhere,
}

/// A pod's position in its line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ticket {
    created: Timestamp,
    /// Those that came later wait behind those of the same second.
    number: u64,
    uid: Uid,
}

#[derive(Debug, Default)]
struct Line {
    waiting: BTreeSet<Ticket>,
    /// The first one cannot be placed for now.
    is_set_aside: bool,
    /// Why the first one could not be placed when it was last tried.
    message: Option<Arc<str>>,
    /// Room on a node may change that.
    wants_room: bool,
    /// Everybody up to here has been told the message.
    told: Option<Ticket>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    priority: Reverse<i32>,
    first: Ticket,
}

impl Placement {
    /// A pod appeared or changed.
    pub(crate) fn apply_pod(&mut self, facts: PodFacts) {
        let is_bound = !facts.node.is_empty();
        if let Some(known) = self.pods.get(&facts.uid) {
            let is_same = *known.class == facts.class
                && match &known.place {
                    Place::Bound(node) => *node == facts.node,
                    Place::Waiting(_) | Place::Assumed(_) => !is_bound && facts.is_ours,
                    Place::Elsewhere => !is_bound && !facts.is_ours,
                };
            if is_same {
                return;
            }
        }
        self.remove_pod(&facts.uid);
        let class = self.class(facts.class);
        let place = if is_bound {
            self.usage.entry(Arc::clone(&facts.node)).or_default().add(&class);
            Place::Bound(facts.node)
        } else if facts.is_ours {
            Place::Waiting(self.queue(&class, facts.created, &facts.uid))
        } else {
            Place::Elsewhere
        };
        self.pods.insert(facts.uid, Pod { namespace: facts.namespace, name: facts.name, class, place });
    }

    /// A pod is gone or has ended: what it took is free again.
    pub(crate) fn remove_pod(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else { return };
        match &pod.place {
            Place::Waiting(ticket) => self.leave(&pod.class, ticket),
            Place::Assumed(node) | Place::Bound(node) => self.free(node, &pod.class),
            Place::Elsewhere => {}
        }
        self.drop_unused(&pod.class);
    }

    pub(crate) fn apply_node(&mut self, offer: Offer) {
        let name: Arc<str> = offer.name.as_str().into();
        if self.nodes.get(&name) == Some(&offer) {
            return;
        }
        self.nodes.insert(name, offer);
        self.reconsider_all();
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        if self.nodes.remove(name).is_some() {
            // Not because anything fits now: the message counts nodes.
            self.reconsider_all();
        }
    }

    /// Chooses nodes for up to `count_max` pods, most urgent first. They count as being there from now on.
    pub(crate) fn place(&mut self, count_max: usize) -> Vec<Placed> {
        self.reconsider_roomier();
        let mut placed = Vec::new();
        while placed.len() < count_max {
            let Some(turn) = self.ready.pop_first() else { break };
            let Some(pod) = self.pods.get_mut(&turn.first.uid) else { continue };
            let class = Arc::clone(&pod.class);
            match choose(&self.nodes, &self.usage, &class) {
                Ok(node) => {
                    let place = Place::Assumed(Arc::clone(&node));
                    pod.place = place;
                    placed.push(Placed { pod: identity(&turn.first.uid, pod), node: Arc::clone(&node) });
                    self.usage.entry(node).or_default().add(&class);
                    if let Some(line) = self.lines.get_mut(&class) {
                        line.waiting.remove(&turn.first);
                    }
                    self.call_next(&class);
                }
                Err((message, wants_room)) => self.set_aside(&class, message, wants_room),
            }
        }
        placed
    }

    /// Is there anything that [`Self::place`] might place?
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.roomier.is_empty()
    }

    /// Is there anything that [`Self::complaints`] might say?
    pub(crate) fn has_complaints(&self) -> bool {
        self.has_untold
    }

    /// A binding failed: the pod waits again, if nothing else is known of it.
    pub(crate) fn unplace(&mut self, uid: &str, created: Timestamp) {
        let Some(pod) = self.pods.get(uid) else { return };
        let Place::Assumed(node) = pod.place.clone() else { return };
        let class = Arc::clone(&pod.class);
        self.free(&node, &class);
        let uid = Uid::from(uid);
        let ticket = self.queue(&class, created, &uid);
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.place = Place::Waiting(ticket);
        }
    }

    /// The next pods, up to `count_max`, whose owner has not been told why they wait.
    pub(crate) fn complaints(&mut self, count_max: usize) -> Vec<Complaint> {
        let mut complaints = Vec::new();
        for line in self.lines.values_mut().filter(|line| line.is_set_aside) {
            let Some(message) = &line.message else { continue };
            let untold = match &line.told {
                None => line.waiting.range(..),
                Some(told) => line.waiting.range((std::ops::Bound::Excluded(told.clone()), std::ops::Bound::Unbounded)),
            };
            let mut told = None;
            for ticket in untold {
                if complaints.len() >= count_max {
                    break;
                }
                if let Some(pod) = self.pods.get(&ticket.uid) {
                    let message = Arc::clone(message);
                    complaints.push(Complaint { pod: identity(&ticket.uid, pod), message });
                }
                told = Some(ticket.clone());
            }
            line.told = told.or(line.told.take());
        }
        self.has_untold = complaints.len() >= count_max;
        complaints
    }

    fn class(&self, class: Class) -> Arc<Class> {
        match self.lines.get_key_value(&class) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::new(class),
        }
    }

    fn drop_unused(&mut self, class: &Arc<Class>) {
        // The line's own key, the caller's copy: nobody else.
        if Arc::strong_count(class) <= 2 && self.lines.get(class).is_some_and(|line| line.waiting.is_empty()) {
            self.lines.remove(class);
        }
    }

    fn queue(&mut self, class: &Arc<Class>, created: Timestamp, uid: &Uid) -> Ticket {
        let ticket = Ticket { created, number: self.next_number, uid: Arc::clone(uid) };
        self.next_number += 1;
        let line = self.lines.entry(Arc::clone(class)).or_default();
        let was_first = line.waiting.first().cloned();
        line.waiting.insert(ticket.clone());
        if line.told.as_ref().is_some_and(|told| ticket < *told) {
            line.told = None;
        }
        if line.is_set_aside {
            self.has_untold = true;
        } else {
            if let Some(first) = was_first {
                self.ready.remove(&Turn { priority: Reverse(class.priority), first });
            }
            self.call_next(class);
        }
        ticket
    }

    fn leave(&mut self, class: &Arc<Class>, ticket: &Ticket) {
        if let Some(line) = self.lines.get_mut(class) {
            line.waiting.remove(ticket);
        }
        if self.ready.remove(&Turn { priority: Reverse(class.priority), first: ticket.clone() }) {
            self.call_next(class);
        }
    }

    /// Puts the first of a line that is not set aside up for its turn.
    fn call_next(&mut self, class: &Class) {
        if let Some(line) = self.lines.get(class)
            && !line.is_set_aside
            && let Some(first) = line.waiting.first()
        {
            self.ready.insert(Turn { priority: Reverse(class.priority), first: first.clone() });
        }
    }

    fn set_aside(&mut self, class: &Class, message: String, wants_room: bool) {
        let Some(line) = self.lines.get_mut(class) else { return };
        line.is_set_aside = true;
        line.wants_room = wants_room;
        self.has_untold = true;
        // What everybody has been told already is not said again.
        if line.message.as_deref() != Some(&*message) {
            line.message = Some(message.into());
            line.told = None;
        }
    }

    fn free(&mut self, node: &Arc<str>, class: &Class) {
        if let Some(usage) = self.usage.get_mut(node) {
            usage.remove(class);
            if usage.pods <= 0 {
                self.usage.remove(node);
            }
        }
        self.roomier.insert(Arc::clone(node));
    }

    fn reconsider_all(&mut self) {
        let classes: Vec<Arc<Class>> = self.lines.keys().cloned().collect();
        for class in classes {
            self.reconsider(&class);
        }
    }

    /// Lines that fit on a node that got room get another turn.
    fn reconsider_roomier(&mut self) {
        if self.roomier.is_empty() {
            return;
        }
        let roomier = std::mem::take(&mut self.roomier);
        let nodes: Vec<(&Offer, Usage)> = roomier
            .iter()
            .filter_map(|name| Some((self.nodes.get(name)?, self.usage.get(name).cloned().unwrap_or_default())))
            .collect();
        let fits = |class: &Class| nodes.iter().any(|(offer, usage)| node::obstacles(offer, usage, class).is_empty());
        let classes: Vec<Arc<Class>> = self
            .lines
            .iter()
            .filter(|(class, line)| line.is_set_aside && line.wants_room && fits(class))
            .map(|(class, _)| Arc::clone(class))
            .collect();
        for class in classes {
            self.reconsider(&class);
        }
    }

    fn reconsider(&mut self, class: &Arc<Class>) {
        if let Some(line) = self.lines.get_mut(class)
            && std::mem::take(&mut line.is_set_aside)
        {
            self.call_next(class);
        }
    }
}

fn identity(uid: &Uid, pod: &Pod) -> Identity {
    Identity { uid: Arc::clone(uid), namespace: Arc::clone(&pod.namespace), name: Arc::clone(&pod.name) }
}

/// The emptiest node that fits, or why there is none and whether room would help.
fn choose(
    nodes: &BTreeMap<Arc<str>, Offer>,
    usage: &HashMap<Arc<str>, Usage>,
    class: &Class,
) -> Result<Arc<str>, (String, bool)> {
    let nothing = Usage::default();
    let mut best: Option<(f64, &Arc<str>)> = None;
    let mut obstacles: BTreeMap<String, usize> = BTreeMap::new();
    let mut short_of_room = 0;
    for (name, offer) in nodes {
        let usage = usage.get(name).unwrap_or(&nothing);
        let found = node::obstacles(offer, usage, class);
        if found.is_empty() {
            let fullness = node::fullness(offer, usage, class);
            if best.is_none_or(|(least, _)| fullness < least) {
                best = Some((fullness, name));
            }
        }
        short_of_room += usize::from(found.iter().any(Obstacle::is_for_want_of_room));
        for obstacle in found {
            *obstacles.entry(obstacle.to_string()).or_default() += 1;
        }
    }
    match best {
        Some((_, name)) => Ok(Arc::clone(name)),
        None => Err((message(nodes.len(), &obstacles, short_of_room), short_of_room > 0)),
    }
}

/// As kube-scheduler says it (PL-104).
fn message(nodes: usize, obstacles: &BTreeMap<String, usize>, short_of_room: usize) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let joined = |mut reasons: Vec<String>| {
        reasons.sort();
        reasons.join(", ")
    };
    let reasons = joined(obstacles.iter().map(|(reason, count)| format!("{count} {reason}")).collect());
    let others = nodes - short_of_room;
    let mut preemption = Vec::new();
    if short_of_room > 0 {
        preemption.push(format!("{short_of_room} No preemption victims found for incoming pod"));
    }
    if others > 0 {
        preemption.push(format!("{others} Preemption is not helpful for scheduling"));
    }
    let preemption = joined(preemption);
    format!("0/{nodes} nodes are available: {reasons}. preemption: 0/{nodes} nodes are available: {preemption}.")
}

#[cfg(test)]
mod tests {
    use super::super::class::Amounts;
    use super::*;

    fn offer(name: &str, cpu_millis: i64, pods_max: i64) -> Offer {
        Offer {
            name: name.to_owned(),
            allocatable: Amounts { cpu_millis, ..Amounts::default() },
            pods_max,
            ..Offer::default()
        }
    }

    fn pod(name: &str, priority: i32, cpu_millis: i64, created: i64) -> PodFacts {
        PodFacts {
            uid: name.into(),
            namespace: "ns".into(),
            name: name.into(),
            created: Timestamp::from_second(created).unwrap(),
            class: Class { priority, requests: Amounts { cpu_millis, ..Amounts::default() }, ..Class::default() },
            node: "".into(),
            is_ours: true,
        }
    }

    fn placed(placement: &mut Placement) -> Vec<String> {
        placement.place(usize::MAX).iter().map(|placed| format!("{}>{}", placed.pod.name, placed.node)).collect()
    }

    fn complaints(placement: &mut Placement) -> Vec<String> {
        placement.complaints(usize::MAX).iter().map(|it| format!("{}: {}", it.pod.name, it.message)).collect()
    }

    #[test]
    fn priority_goes_before_age_and_age_before_the_rest() {
        let mut placement = Placement::default();
        placement.apply_node(offer("n", 1_000_000, 100));
        for facts in [pod("young", 0, 1, 9), pod("old", 0, 2, 1), pod("urgent", 5, 1, 10), pod("second", 0, 1, 9)] {
            placement.apply_pod(facts);
        }
        assert_eq!(placed(&mut placement), ["urgent>n", "old>n", "young>n", "second>n"]);
        assert!(!placement.has_work());
    }

    /// INV-32: ten thousand pods of Jobs wait, are placed, bound or refused, and go.
    #[test]
    fn reg_a14_nothing_is_remembered_of_pods_that_are_gone() {
        const PODS: i64 = 10_000;
        let mut placement = Placement::default();
        placement.apply_node(offer("n", 9 * PODS, PODS / 2));
        let facts = |number: i64| pod(&format!("p{number}"), (number % 7) as i32, number % 10, number);
        (0..PODS).for_each(|number| placement.apply_pod(facts(number)));
        for (number, placed) in placement.place(usize::MAX).into_iter().enumerate() {
            match number % 3 {
                0 => placement.unplace(&placed.pod.uid, Timestamp::UNIX_EPOCH),
                1 => placement.apply_pod(PodFacts { node: "n".into(), ..facts(number as i64) }),
                _ => {}
            }
        }
        placement.complaints(100);
        (0..PODS).for_each(|number| placement.remove_pod(&facts(number).uid));
        placement.remove_node("n");
        assert_eq!(placed(&mut placement), [""; 0]);
        let Placement { nodes, usage, pods, lines, ready, roomier, has_untold: _, next_number: _ } = &placement;
        assert_eq!((nodes.len(), usage.len(), pods.len()), (0, 0, 0));
        assert_eq!((lines.len(), ready.len(), roomier.len()), (0, 0, 0));
    }

    #[test]
    fn the_emptiest_node_is_taken() {
        let mut placement = Placement::default();
        placement.apply_node(offer("a", 1000, 10));
        placement.apply_node(offer("b", 2000, 10));
        for number in 0..3 {
            placement.apply_pod(pod(&format!("p{number}"), 0, 500, number));
        }
        assert_eq!(placed(&mut placement), ["p0>b", "p1>a", "p2>b"]);
    }

    #[test]
    fn a_pod_that_does_not_fit_waits_until_room_appears() {
        let mut placement = Placement::default();
        placement.apply_node(offer("n", 1000, 10));
        placement.apply_pod(pod("first", 0, 800, 1));
        placement.apply_pod(pod("second", 0, 800, 2));
        placement.apply_pod(pod("small", 0, 200, 3));
        assert_eq!(placed(&mut placement), ["first>n", "small>n"], "others do not wait behind it");
        assert_eq!(
            complaints(&mut placement),
            [
                "second: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption \
              victims found for incoming pod."
            ]
        );
        assert!(complaints(&mut placement).is_empty(), "once is enough");
        placement.remove_pod("small");
        assert!(placement.has_work());
        assert!(placed(&mut placement).is_empty(), "not enough room yet");
        placement.remove_pod("first");
        assert_eq!(placed(&mut placement), ["second>n"]);
    }

    #[test]
    fn a_new_node_is_tried_at_once() {
        let mut placement = Placement::default();
        placement.apply_pod(pod("p", 0, 1, 1));
        assert!(placed(&mut placement).is_empty());
        assert_eq!(complaints(&mut placement), ["p: no nodes available to schedule pods"]);
        placement.apply_node(offer("n", 1000, 10));
        assert_eq!(placed(&mut placement), ["p>n"]);
    }

    #[test]
    fn messages_count_every_node() {
        let mut placement = Placement::default();
        placement.apply_node(offer("full", 0, 10));
        placement.apply_node(Offer { is_unschedulable: true, ..offer("cordoned", 1000, 10) });
        placement.apply_pod(pod("p", 0, 1, 1));
        placed(&mut placement);
        assert_eq!(
            complaints(&mut placement),
            [
                "p: 0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. preemption: 0/2 nodes are \
              available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
            ]
        );
    }

    #[test]
    fn bound_pods_count_until_they_are_gone() {
        let mut placement = Placement::default();
        placement.apply_node(offer("n", 1000, 10));
        placement.apply_pod(PodFacts { node: "n".into(), ..pod("there", 0, 600, 1) });
        placement.apply_pod(pod("p", 0, 600, 2));
        assert!(placed(&mut placement).is_empty());
        placement.remove_pod("there");
        assert_eq!(placed(&mut placement), ["p>n"]);
        // The watch shows the binding, more than once.
        for _ in 0..2 {
            placement.apply_pod(PodFacts { node: "n".into(), ..pod("p", 0, 600, 2) });
        }
        assert_eq!(placement.usage["n"].requests.cpu_millis, 600);
        placement.remove_pod("p");
        assert!(placement.usage.is_empty() && placement.pods.is_empty() && placement.lines.is_empty());
    }

    #[test]
    fn a_failed_binding_frees_what_it_took() {
        let mut placement = Placement::default();
        placement.apply_node(offer("n", 1000, 1));
        placement.apply_pod(pod("p", 0, 1, 1));
        assert_eq!(placed(&mut placement), ["p>n"]);
        placement.apply_pod(pod("p", 0, 1, 1));
        assert!(placed(&mut placement).is_empty(), "an echo of the past does not place it again");
        placement.unplace("p", Timestamp::UNIX_EPOCH);
        assert_eq!(placed(&mut placement), ["p>n"]);
    }

    #[test]
    fn gated_and_foreign_pods_are_left_alone() {
        let mut placement = Placement::default();
        placement.apply_node(offer("n", 1000, 10));
        placement.apply_pod(PodFacts { is_ours: false, ..pod("gated", 0, 1, 1) });
        assert!(placed(&mut placement).is_empty());
        placement.apply_pod(pod("gated", 0, 1, 1));
        assert_eq!(placed(&mut placement), ["gated>n"]);
    }

    #[test]
    fn a_hundred_thousand_waiting_pods_are_one_line() {
        let mut placement = Placement::default();
        placement.apply_node(offer("n", 1_000_000, 10));
        for number in 0..100_000 {
            placement.apply_pod(pod(&format!("p{number}"), 0, 1, number));
        }
        let mut total = placement.place(usize::MAX).len();
        assert_eq!(total, 10);
        // Each pod that ends lets one in, at the cost of one look.
        for number in 0..1000 {
            placement.remove_pod(&format!("p{number}"));
            total += placement.place(usize::MAX).len();
        }
        assert_eq!(total, 1010);
        assert_eq!(placement.lines.len(), 1);
    }
}
