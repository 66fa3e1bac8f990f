//! What changed between two objects, as sets of fields. Follows `typed/compare.go`.
//!
//! Runs on every write, so parts that are equal cost one comparison and no allocation.

use api_schema::{ListType, Shape, Type};
use serde_json::Value;

use super::field_set::{FieldSet, attach};
use super::typed::{Typed, equal};
use super::{Object, element};

/// The difference between a left and a right object. No field is in both sets.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Comparison {
    /// Fields that the right object has and the left one has not, or has with another value. Upstream keeps the two
    /// apart, but nothing asks which of them a field is in.
    pub(super) changed: FieldSet,
    /// Fields that only the left object has.
    pub(super) removed: FieldSet,
}

/// Compares two objects of the same type, without the fields at the paths in `skip` and below them.
///
/// An error is about list items without an identity, which no valid object has.
pub(super) fn compare(ty: &'static Type, left: &Value, right: &Value, skip: &[&[&str]]) -> Result<Comparison, String> {
    let mut sets = Sets { open: Vec::new(), root: Differences::default() };
    walk(ty, left, right, skip, &mut sets)?;
    let Differences { changed, removed } = sets.root;
    Ok(Comparison { changed: FieldSet::trusted(changed), removed: FieldSet::trusted(removed) })
}

/// Shows a witness what differs. What is equal it may be shown, or not.
pub(super) fn walk(
    ty: &'static Type,
    left: &Value,
    right: &Value,
    skip: &[&[&str]],
    witness: &mut impl Witness,
) -> Result<(), String> {
    let nothing = Object::new();
    let left = left.as_object().unwrap_or(&nothing);
    let right = right.as_object().unwrap_or(&nothing);
    Walk { witness }.members(left, right, Typed::root(ty), skip)
}

/// What is told of a walk over two objects.
pub(super) trait Witness {
    /// The walk goes down to a node.
    fn enter(&mut self, step: Step<'_>);
    /// It has seen all that is below, and goes back.
    fn leave(&mut self, step: Step<'_>, fate: Fate);
}

/// A step down from a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step<'a> {
    /// To a member of this name.
    Field(&'a str),
    /// To the item with this identity, in its wire form.
    Item(&'a str),
}

impl Step<'_> {
    fn wire_form(self) -> String {
        match self {
            Self::Field(name) => element::field(name),
            Self::Item(identity) => identity.to_owned(),
        }
    }
}

/// What happened to a node itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Same,
    Changed,
    Removed,
}

/// Collects the two sets.
struct Sets {
    /// The nodes that the walk is in, from the top.
    open: Vec<Differences>,
    root: Differences,
}

/// The two sets for what is below one node.
#[derive(Default)]
struct Differences {
    changed: Object,
    removed: Object,
}

impl Witness for Sets {
    fn enter(&mut self, _: Step<'_>) {
        self.open.push(Differences::default());
    }

    fn leave(&mut self, step: Step<'_>, fate: Fate) {
        let below = self.open.pop().unwrap_or_default();
        self.open.last_mut().unwrap_or(&mut self.root).attach(below, step, fate);
    }
}

impl Differences {
    fn attach(&mut self, below: Self, step: Step<'_>, fate: Fate) {
        let changed = fate == Fate::Changed || !below.changed.is_empty();
        let removed = fate == Fate::Removed || !below.removed.is_empty();
        if changed {
            attach(&mut self.changed, step.wire_form(), below.changed, fate == Fate::Changed);
        }
        if removed {
            attach(&mut self.removed, step.wire_form(), below.removed, fate == Fate::Removed);
        }
    }
}

struct Walk<'w, W> {
    witness: &'w mut W,
}

impl<W: Witness> Walk<'_, W> {
    /// Looks at one node, `None` where a side does not have it, and at what is below it.
    fn node(
        &mut self,
        left: Option<&Value>,
        right: Option<&Value>,
        typed: Typed,
        skip: &[&[&str]],
    ) -> Result<Fate, String> {
        match typed {
            Typed::Struct { atomic: false, .. } | Typed::Map { atomic: false, .. } => {
                let nothing = Object::new();
                let left_members = left.and_then(Value::as_object).unwrap_or(&nothing);
                let right_members = right.and_then(Value::as_object).unwrap_or(&nothing);
                if left_members.is_empty() && right_members.is_empty() {
                    return Ok(leaf(left, right));
                }
                self.members(left_members, right_members, typed, skip)?;
            }
            Typed::List { items, kind: kind @ (ListType::Set | ListType::Map(_)) } => {
                let left_items = left.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                let right_items = right.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                if left_items.is_empty() && right_items.is_empty() {
                    return Ok(leaf(left, right));
                }
                self.items(left_items, right_items, items, kind)?;
            }
            _ => return Ok(leaf(left, right)),
        }
        Ok(match (left, right) {
            (None, _) => Fate::Changed,
            (_, None) => Fate::Removed,
            _ => Fate::Same,
        })
    }

    /// Goes down one step and looks around there.
    fn below(
        &mut self,
        step: Step<'_>,
        (left, right): (Option<&Value>, Option<&Value>),
        typed: Typed,
        skip: &[&[&str]],
    ) -> Result<(), String> {
        self.witness.enter(step);
        let fate = self.node(left, right, typed, skip)?;
        self.witness.leave(step, fate);
        Ok(())
    }

    /// Says of something what happened to it, whatever is below.
    fn tell(&mut self, step: Step<'_>, fate: Fate) {
        self.witness.enter(step);
        self.witness.leave(step, fate);
    }

    fn members(&mut self, left: &Object, right: &Object, typed: Typed, skip: &[&[&str]]) -> Result<(), String> {
        let mut in_step = left.iter().peekable();
        let mut shared = 0;
        for (name, value) in right {
            let other = match in_step.next_if(|(other, _)| *other == name) {
                Some((_, other)) => Some(other),
                None if left.is_empty() => None,
                None => left.get(name),
            };
            shared += usize::from(other.is_some());
            self.member(name, other, Some(value), typed, skip)?;
        }
        if shared < left.len() {
            for (name, value) in left.iter().filter(|(name, _)| !right.contains_key(*name)) {
                self.member(name, Some(value), None, typed, skip)?;
            }
        }
        Ok(())
    }

    fn member(
        &mut self,
        name: &str,
        left: Option<&Value>,
        right: Option<&Value>,
        typed: Typed,
        skip: &[&[&str]],
    ) -> Result<(), String> {
        if skip.contains(&&[name][..]) || same(left, right) {
            return Ok(());
        }
        // Objects are decoded before they come here, so a member that the type does not know is nobody's.
        let Some(typed) = typed.member(name) else { return Ok(()) };
        let skip_below: Vec<&[&str]> =
            skip.iter().filter(|path| path.first() == Some(&name)).map(|path| &path[1..]).collect();
        self.below(Step::Field(name), (left, right), typed, &skip_below)
    }

    fn items(&mut self, left: &[Value], right: &[Value], items: &'static Shape, kind: &ListType) -> Result<(), String> {
        let mut all = Vec::with_capacity(left.len() + right.len());
        for (is_left, item) in left.iter().map(|item| (true, item)).chain(right.iter().map(|item| (false, item))) {
            all.push((element::of_item(item, kind, items)?, is_left, item));
        }
        // Stable: within an identity the left items come first, each side in its order.
        all.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        for group in all.chunk_by(|(one, ..), (other, ..)| one == other) {
            let (left, right) = group.split_at(group.iter().take_while(|(_, is_left, _)| *is_left).count());
            self.item(Step::Item(&group[0].0), left, right, Typed::of_element(items))?;
        }
        Ok(())
    }

    /// All items with one identity. If there are several on a side, which updates may bring in, the identity stands for
    /// all of them and they are compared as a whole.
    fn item(&mut self, step: Step<'_>, left: &[Item<'_>], right: &[Item<'_>], typed: Typed) -> Result<(), String> {
        match (left.len(), right.len()) {
            (0 | 1, 0 | 1) => {
                let sides = (first_item(left), first_item(right));
                if !same(sides.0, sides.1) {
                    self.below(step, sides, typed, &[])?;
                }
            }
            (2.., 2..) => {
                let unchanged =
                    left.len() == right.len() && left.iter().zip(right).all(|((_, _, l), (_, _, r))| equal(l, r));
                if !unchanged {
                    self.tell(step, Fate::Changed);
                }
            }
            (2.., _) => {
                if let Some(right) = first_item(right) {
                    self.below(step, (None, Some(right)), typed, &[])?;
                }
                self.tell(step, Fate::Removed);
            }
            (_, 2..) => {
                if let Some(left) = first_item(left) {
                    self.below(step, (Some(left), None), typed, &[])?;
                }
                self.tell(step, Fate::Changed);
            }
        }
        Ok(())
    }
}

/// A list item with its identity; true if it is the left side's.
type Item<'a> = (String, bool, &'a Value);

fn first_item<'a>(side: &[Item<'a>]) -> Option<&'a Value> {
    side.first().map(|(_, _, item)| *item)
}

fn same(left: Option<&Value>, right: Option<&Value>) -> bool {
    matches!((left, right), (Some(left), Some(right)) if equal(left, right))
}

fn leaf(left: Option<&Value>, right: Option<&Value>) -> Fate {
    match (left, right) {
        (None, _) => Fate::Changed,
        (_, None) => Fate::Removed,
        (Some(left), Some(right)) if !equal(left, right) => Fate::Changed,
        _ => Fate::Same,
    }
}
