//! Amounts of resources by name: Kubernetes' ResourceList with arithmetic.

use std::collections::BTreeMap;

use api_schema::Quantity;
use serde_json::{Map, Value};

/// Amounts by resource, sorted as messages list them.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// A ResourceList of an object. Decoding has refused what is no quantity.
pub(crate) fn read(list: Option<&Value>) -> Amounts {
    list.and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, amount)| (name.clone(), amount.as_str().and_then(parse).unwrap_or(Quantity::ZERO)))
        .collect()
}

/// The amounts as a ResourceList of an object.
pub(crate) fn write(amounts: &Amounts) -> Value {
    let members: Map<String, Value> =
        amounts.iter().map(|(name, amount)| (name.clone(), Value::from(amount.to_string()))).collect();
    Value::Object(members)
}

/// Adds to what is there.
pub(super) fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        total.entry(name.clone()).or_insert(Quantity::ZERO).add(amount);
    }
}

/// `cpu=1,memory=2Gi`, as refusals say it.
pub(super) fn printed<'a>(amounts: impl IntoIterator<Item = (&'a str, &'a Quantity)>) -> String {
    let parts: Vec<String> = amounts.into_iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    parts.join(",")
}

/// Nothing finer than a thousandth is kept (upstream's `SetDefaults_ResourceList`).
pub(crate) fn round_up(list: Option<&mut Value>) {
    const MILLI: i32 = -3;
    for amount in list.and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        let Some(mut rounded) = amount.as_str().and_then(parse) else { continue };
        rounded.round_up(MILLI);
        let text = rounded.to_string();
        if amount.as_str() != Some(&text) {
            *amount = Value::from(text);
        }
    }
}

fn parse(text: &str) -> Option<Quantity> {
    Quantity::parse(text).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_survive_and_add_up() {
        let mut total = read(Some(&json!({"cpu": "500m", "pods": "1"})));
        add(&mut total, &read(Some(&json!({"cpu": "1", "memory": "128Mi"}))));
        assert_eq!(write(&total), json!({"cpu": "1500m", "memory": "128Mi", "pods": "1"}));
        assert!(read(None).is_empty() && read(Some(&json!(7))).is_empty());
    }

    #[test]
    fn fractions_are_rounded_up() {
        let mut list = json!({"cpu": "100u", "memory": "1.0001", "pods": "3"});
        round_up(Some(&mut list));
        assert_eq!(list, json!({"cpu": "1m", "memory": "1001m", "pods": "3"}));
    }
}
