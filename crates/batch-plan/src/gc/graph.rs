//! Who depends on whom, as far as the watches have shown.
//!
//! The graph may lag behind the truth. It is therefore only used to find what is worth judging; before anything is
//! deleted, the absence of its owners is confirmed by the server (INV-40).

use std::collections::{BTreeSet, HashMap};

use super::{
    object::{Deletion, Object, OwnerReference, Uid},
    verdict::Standing,
};

/// All objects, and the references between them.
#[derive(Debug, Default)]
pub struct Graph {
    objects: HashMap<Uid, Object>,
    /// Dependents by the uid of the owner they name, whether that owner is known or not.
    /// In order, so that what follows from news is repeatable.
    dependents: HashMap<Uid, BTreeSet<Uid>>,
}

/// Something to do because of news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The object's owners, or what it waits for, may have changed: [`Graph::situation`].
    Judge(Uid),
    /// The object's dependents are to forget it.
    Orphan(Uid),
    /// The object names an owner that exists, but elsewhere (PL-96).
    ReportInvalidNamespace { dependent: Uid, owner: OwnerReference },
}

/// Where an object stands, as far as the graph knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Situation {
    /// It is gone, has no owners, has all its owners, or is on its way out by itself.
    AtRest,
    /// It is in foreground deletion and nothing blocks it any more: its finalizer goes.
    Released(Object),
    /// Not all of its owners are there and well; `standings` is parallel to its owners.
    InDoubt {
        object: Object,
        standings: Vec<Standing>,
        has_dependents: bool,
        /// One of its dependents is in foreground deletion, so waiting for that one could be a circle.
        may_be_circular: bool,
    },
}

impl Graph {
    pub fn get(&self, uid: &str) -> Option<&Object> {
        self.objects.get(uid)
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether nothing is known of any object, not even that others name it (REG-A14).
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.dependents.is_empty()
    }

    /// Notes an object that appeared or changed.
    pub fn apply(&mut self, object: Object) -> Vec<Step> {
        let mut steps = Vec::new();
        let uid = object.uid.clone();
        let old = self.objects.remove(&uid);
        let old_owners: &[OwnerReference] = old.as_ref().map_or(&[], |old| &old.owners);
        self.forget_references(&uid, old_owners, &object.owners, &mut steps);
        self.note_references(&object, old_owners, &mut steps);
        self.note_deletion(&object, old.map(|old| old.deletion), &mut steps);
        self.objects.insert(uid, object);
        steps
    }

    /// Notes that an object is gone.
    pub fn remove(&mut self, uid: &str) -> Vec<Step> {
        let mut steps = Vec::new();
        let Some(object) = self.objects.remove(uid) else { return steps };
        self.forget_references(&object.uid, &object.owners, &[], &mut steps);
        steps.extend(self.dependents_of(uid).cloned().map(Step::Judge));
        steps
    }

    /// The objects that name `uid` as an owner.
    pub fn dependents_of<'a>(&'a self, uid: &str) -> impl Iterator<Item = &'a Uid> + use<'a> {
        self.dependents.get(uid).into_iter().flatten()
    }

    pub fn situation(&self, uid: &str) -> Situation {
        let Some(object) = self.objects.get(uid) else { return Situation::AtRest };
        match object.deletion {
            Deletion::Foreground if !self.is_blocked(uid) => return Situation::Released(object.clone()),
            Deletion::Foreground | Deletion::Plain | Deletion::Orphan => return Situation::AtRest,
            Deletion::No => {}
        }
        let standings: Vec<Standing> = object.owners.iter().map(|owner| self.standing(object, owner)).collect();
        if standings.iter().all(|standing| *standing == Standing::Solid) {
            return Situation::AtRest;
        }
        let mut dependents = self.dependents_of(uid).filter_map(|dependent| self.objects.get(dependent));
        Situation::InDoubt {
            object: object.clone(),
            standings,
            has_dependents: self.dependents_of(uid).next().is_some(),
            may_be_circular: dependents.any(|dependent| dependent.deletion == Deletion::Foreground),
        }
    }

    /// How an owner stands. What the graph does not know counts as dangling until the server was asked.
    fn standing(&self, dependent: &Object, reference: &OwnerReference) -> Standing {
        match self.objects.get(&reference.uid) {
            Some(owner) if !is_meant(dependent, reference, owner) => Standing::Dangling,
            Some(owner) if owner.deletion == Deletion::Foreground => Standing::Waiting,
            Some(_) => Standing::Solid,
            None => Standing::Dangling,
        }
    }

    /// Whether something waits to be deleted first. An object that names itself as its owner does not wait for itself.
    fn is_blocked(&self, owner: &str) -> bool {
        self.dependents_of(owner)
            .filter(|dependent| &***dependent != owner)
            .filter_map(|dependent| self.objects.get(dependent))
            .any(|dependent| blocks(&dependent.owners, owner))
    }

    /// Takes back references that are no longer there, and tells owners that waited for them.
    fn forget_references(&mut self, uid: &Uid, old: &[OwnerReference], new: &[OwnerReference], steps: &mut Vec<Step>) {
        for reference in old {
            if !new.iter().any(|kept| kept.uid == reference.uid)
                && let Some(dependents) = self.dependents.get_mut(&reference.uid)
            {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&reference.uid);
                }
            }
            let unblocks = reference.block_owner_deletion && !blocks(new, &reference.uid);
            let waits = self.objects.get(&reference.uid).is_some_and(|owner| owner.deletion == Deletion::Foreground);
            if unblocks && waits {
                steps.push(Step::Judge(reference.uid.clone()));
            }
        }
    }

    /// Notes references that are new, and finds out whether their owners are as they should be.
    fn note_references(&mut self, object: &Object, old: &[OwnerReference], steps: &mut Vec<Step>) {
        let mut in_doubt = false;
        for reference in &object.owners {
            if old.contains(reference) {
                continue;
            }
            self.dependents.entry(reference.uid.clone()).or_default().insert(object.uid.clone());
            in_doubt |= self.standing(object, reference) != Standing::Solid;
            let elsewhere = |owner: &Object| is_elsewhere(object, owner);
            if self.objects.get(&reference.uid).is_some_and(elsewhere) {
                let owner = reference.clone();
                steps.push(Step::ReportInvalidNamespace { dependent: object.uid.clone(), owner });
            }
        }
        if in_doubt {
            steps.push(Step::Judge(object.uid.clone()));
        }
    }

    /// Notes that a deletion began whose end is the collector's affair.
    fn note_deletion(&mut self, object: &Object, old: Option<Deletion>, steps: &mut Vec<Step>) {
        if old == Some(object.deletion) {
            return;
        }
        match object.deletion {
            // Deletions are not taken back, but a server can be put back to an older state (P-10).
            Deletion::No if old.is_some() => steps.push(Step::Judge(object.uid.clone())),
            Deletion::No | Deletion::Plain => {}
            Deletion::Orphan => steps.push(Step::Orphan(object.uid.clone())),
            Deletion::Foreground => {
                steps.extend(self.dependents_of(&object.uid).cloned().map(Step::Judge));
                steps.push(Step::Judge(object.uid.clone()));
            }
        }
        if old.is_none() {
            // Dependents that were seen first may have named an owner that is not the one they meant.
            let elsewhere = self.dependents_of(&object.uid).filter_map(|dependent| self.objects.get(dependent));
            let reports: Vec<Step> = elsewhere
                .filter(|dependent| is_elsewhere(dependent, object))
                .flat_map(|dependent| {
                    let named = dependent.owners.iter().filter(|reference| reference.uid == object.uid);
                    named.map(|owner| (dependent.uid.clone(), owner.clone()))
                })
                .map(|(dependent, owner)| Step::ReportInvalidNamespace { dependent, owner })
                .collect();
            steps.extend(reports);
        }
    }
}

fn blocks(references: &[OwnerReference], owner: &str) -> bool {
    references.iter().any(|reference| &*reference.uid == owner && reference.block_owner_deletion)
}

/// Whether `owner` is what `reference` says, apart from the uid.
fn is_meant(dependent: &Object, reference: &OwnerReference, owner: &Object) -> bool {
    owner.kind.group == reference.group()
        && owner.kind.kind == *reference.kind
        && *owner.name == *reference.name
        && !is_elsewhere(dependent, owner)
}

/// Owners are in the dependent's namespace or in none.
fn is_elsewhere(dependent: &Object, owner: &Object) -> bool {
    owner.kind.namespaced && owner.namespace != dependent.namespace
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;
    use crate::gc::object::{Kind, Propagation};

    fn kind(name: &str) -> Arc<Kind> {
        Arc::new(Kind {
            group: "batch".to_owned(),
            version: "v1".to_owned(),
            kind: name.to_owned(),
            plural: String::new(),
            namespaced: name != "Node",
        })
    }

    /// `Job ns/a`, then owners as `>b` or, blocking, `>>b`, and the deletion as `foreground`, `orphan` or `plain`.
    fn object(text: &str) -> Object {
        let mut words = text.split(' ');
        let kind_name = words.next().unwrap();
        let (namespace, name) = words.next().unwrap().split_once('/').unwrap();
        let mut object = Object {
            uid: name.into(),
            kind: kind(kind_name),
            namespace: namespace.into(),
            name: name.into(),
            resource_version: "1".into(),
            owners: Box::default(),
            deletion: Deletion::No,
            propagation: Propagation::Background,
        };
        let mut owners = Vec::new();
        for word in words {
            match word {
                "foreground" => object.deletion = Deletion::Foreground,
                "orphan" => object.deletion = Deletion::Orphan,
                "plain" => object.deletion = Deletion::Plain,
                owner => owners.push(reference(owner)),
            }
        }
        object.owners = owners.into();
        object
    }

    fn reference(text: &str) -> OwnerReference {
        let name: Arc<str> = text.trim_start_matches('>').into();
        OwnerReference {
            api_version: "batch/v2".into(),
            kind: "Job".into(),
            uid: name.clone(),
            name,
            block_owner_deletion: text.starts_with(">>"),
        }
    }

    fn text(steps: Vec<Step>) -> Vec<String> {
        let mut steps: Vec<String> = steps
            .into_iter()
            .map(|step| match step {
                Step::Judge(uid) => format!("judge {uid}"),
                Step::Orphan(uid) => format!("orphan {uid}"),
                Step::ReportInvalidNamespace { dependent, owner } => format!("report {dependent} {}", owner.name),
            })
            .collect();
        steps.sort();
        steps
    }

    /// Objects are applied in turn, `-a` removes; the steps are those of the last one.
    fn steps(history: &[&str]) -> Vec<String> {
        let mut graph = Graph::default();
        let mut last = Vec::new();
        for event in history {
            last = match event.strip_prefix('-') {
                Some(uid) => graph.remove(uid),
                None => graph.apply(object(event)),
            };
        }
        text(last)
    }

    #[test]
    fn news_make_objects_worth_judging() {
        let cases: &[(&[&str], &[&str])] = &[
            (&["Job ns/j"], &[]),
            (&["Job ns/j", "Pod ns/p >>j"], &[]),
            // The owner is not known (yet).
            (&["Pod ns/p >j"], &["judge p"]),
            (&["Pod ns/p >j", "Job ns/j"], &[]),
            // The owner goes.
            (&["Job ns/j", "Pod ns/p >j", "Pod ns/q >j", "-j"], &["judge p", "judge q"]),
            (&["-j"], &[]),
            // The owner starts to wait: everybody is looked at.
            (&["Job ns/j", "Pod ns/p >j", "Job ns/j foreground"], &["judge j", "judge p"]),
            (&["Job ns/j foreground", "Job ns/j foreground"], &[]),
            (&["Pod ns/p >j", "Job ns/j foreground"], &["judge j", "judge p"]),
            (&["Job ns/j foreground", "Pod ns/p >>j"], &["judge p"]),
            // What it waited for goes, or lets go.
            (&["Job ns/j foreground", "Pod ns/p >>j", "-p"], &["judge j"]),
            (&["Job ns/j foreground", "Pod ns/p >>j", "Pod ns/p >j"], &["judge j", "judge p"]),
            (&["Job ns/j foreground", "Pod ns/p >j", "-p"], &[]),
            (&["Job ns/j", "Pod ns/p >>j", "-p"], &[]),
            // Orphans.
            (&["Job ns/j", "Pod ns/p >j", "Job ns/j orphan"], &["orphan j"]),
            (&["Job ns/j orphan", "Job ns/j orphan"], &[]),
            // Owners elsewhere (PL-96), whichever is seen first.
            (&["Job other/j", "Pod ns/p >j"], &["judge p", "report p j"]),
            (&["Pod ns/p >j", "Job other/j"], &["report p j"]),
        ];
        for (history, expected) in cases {
            assert_eq!(steps(history), *expected, "{history:?}");
        }
    }

    fn situation(history: &[&str], uid: &str) -> String {
        let mut graph = Graph::default();
        for event in history {
            match event.strip_prefix('-') {
                Some(uid) => graph.remove(uid),
                None => graph.apply(object(event)),
            };
        }
        match graph.situation(uid) {
            Situation::AtRest => "at rest".to_owned(),
            Situation::Released(_) => "released".to_owned(),
            Situation::InDoubt { standings, has_dependents, may_be_circular, .. } => {
                let flag = |set: bool, name: &str| if set { format!(" {name}") } else { String::new() };
                format!("{standings:?}{}{}", flag(has_dependents, "dependents"), flag(may_be_circular, "circular"))
            }
        }
    }

    #[test]
    fn situations_are_told_apart() {
        let cases: &[(&[&str], &str, &str)] = &[
            (&[], "p", "at rest"),
            (&["Pod ns/p"], "p", "at rest"),
            (&["Job ns/j", "Pod ns/p >j"], "p", "at rest"),
            (&["Pod ns/p >j"], "p", "[Dangling]"),
            (&["Pod ns/p >j plain"], "p", "at rest"),
            (&["Job ns/j", "Pod ns/p >j >k"], "p", "[Solid, Dangling]"),
            (&["Job ns/j foreground", "Pod ns/p >j"], "p", "[Waiting]"),
            (&["Job ns/j plain", "Pod ns/p >j"], "p", "at rest"),
            // Same uid, but another kind, or another namespace.
            (&["Pod ns/j", "Pod ns/p >j"], "p", "[Dangling]"),
            (&["Job other/j", "Pod ns/p >j"], "p", "[Dangling]"),
            // Foreground deletion ends when nothing blocks it.
            (&["Job ns/j foreground"], "j", "released"),
            (&["Job ns/j foreground", "Pod ns/p >>j"], "j", "at rest"),
            (&["Job ns/j foreground", "Pod ns/p >j"], "j", "released"),
            (&["Job ns/j foreground", "Pod ns/p >>j", "-p"], "j", "released"),
            // Chains and circles.
            (&["Job ns/c foreground", "Job ns/j >>c", "Pod ns/p >>j"], "j", "[Waiting] dependents"),
            (&["Job ns/a >>b foreground", "Job ns/b >>a"], "b", "[Waiting] dependents circular"),
            (&["Job ns/a >>a foreground"], "a", "released"),
        ];
        for (history, uid, expected) in cases {
            assert_eq!(situation(history, uid), *expected, "{history:?} {uid}");
        }
    }

    #[test]
    fn nothing_is_left_when_everything_is_gone() {
        let mut graph = Graph::default();
        for event in ["Job ns/j", "Pod ns/p >j >k", "Pod ns/p >k", "Pod ns/q >j"] {
            graph.apply(object(event));
        }
        for uid in ["p", "j", "q"] {
            graph.remove(uid);
        }
        assert!(graph.is_empty() && graph.dependents.is_empty(), "{graph:?}");
    }

    #[derive(Debug, Clone)]
    enum Event {
        Apply { uid: usize, owners: Vec<(usize, bool)>, deletion: Deletion },
        Remove { uid: usize },
    }

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    fn event() -> impl Strategy<Value = Event> {
        let deletions = [Deletion::No, Deletion::No, Deletion::Plain, Deletion::Foreground, Deletion::Orphan];
        let apply = (0..4_usize, vec((0..4_usize, any::<bool>()), 0..3), select(deletions.to_vec()))
            .prop_map(|(uid, owners, deletion)| Event::Apply { uid, owners, deletion });
        prop_oneof![3 => apply, 1 => (0..4_usize).prop_map(|uid| Event::Remove { uid })]
    }

    fn play(graph: &mut Graph, event: &Event) -> Vec<Step> {
        match event {
            Event::Remove { uid } => graph.remove(NAMES[*uid]),
            Event::Apply { uid, owners, deletion } => {
                let mut object = object(&format!("Job ns/{}", NAMES[*uid]));
                let mark = |blocks: bool| if blocks { ">>" } else { ">" };
                let mut owners = owners.clone();
                owners.sort();
                owners.dedup_by_key(|(owner, _)| *owner);
                object.owners = owners
                    .iter()
                    .map(|(owner, blocks)| reference(&format!("{}{}", mark(*blocks), NAMES[*owner])))
                    .collect();
                object.deletion = *deletion;
                graph.apply(object)
            }
        }
    }

    proptest! {
        /// INV-30: whatever needs attention has been announced since it does.
        #[test]
        fn nothing_that_needs_judgement_is_overlooked(history in vec(event(), 0..24)) {
            let mut graph = Graph::default();
            let mut announced = BTreeSet::new();
            for event in &history {
                for step in play(&mut graph, event) {
                    if let Step::Judge(uid) = step {
                        announced.insert(uid);
                    }
                }
                // A worker that finds nothing to do forgets about it.
                announced.retain(|uid| graph.situation(uid) != Situation::AtRest);
                for name in NAMES {
                    let overlooked = graph.situation(name) != Situation::AtRest && !announced.contains(name);
                    prop_assert!(!overlooked, "{name} after {event:?}");
                }
            }
        }

        /// INV-32: what is remembered depends on what exists, not on how it came about.
        #[test]
        fn history_leaves_no_trace(history in vec(event(), 0..24)) {
            let mut graph = Graph::default();
            for event in &history {
                play(&mut graph, event);
            }
            let mut fresh = Graph::default();
            for object in graph.objects.values() {
                fresh.apply(object.clone());
            }
            prop_assert_eq!(&fresh.dependents, &graph.dependents);
        }
    }
}
