//! Prints microseconds per operation for a pod of 2–3 kB. Run with `--release`; an argument selects operations by name.

use std::hint::black_box;
use std::time::Instant;

use api_schema::{json, protobuf, registry};

const POD: &[u8] = include_bytes!("pod.json");

fn main() {
    let start = Instant::now();
    let ty = registry().kind("v1", "Pod").expect("pods are served");
    println!("reading the tables took {:?}", start.elapsed());
    let value = json::decode(ty, POD).expect("a pod").value;
    let mut encoded = Vec::new();
    json::encode(&value, &mut encoded);
    let document = &encoded.clone()[..];
    let wire = protobuf::encode(ty, &value, "v1", "Pod");
    let (_, raw) = protobuf::decode_envelope(&wire).expect("our own envelope");
    println!("{} bytes of JSON, {} of protobuf", document.len(), wire.len());

    measure("json::type_meta", || drop(black_box(json::type_meta(black_box(document)))));
    measure("json::decode", || drop(black_box(json::decode(ty, black_box(document)))));
    measure("json::convert (and a clone)", || drop(black_box(json::convert(ty, value.clone()))));
    measure("clone", || drop(black_box(value.clone())));
    measure("json::encode", || {
        encoded.clear();
        json::encode(black_box(&value), &mut encoded);
    });
    measure("json::encode_stamped", || drop(black_box(json::encode_stamped(black_box(&value)))));
    measure("protobuf::encode", || drop(black_box(protobuf::encode(ty, black_box(&value), "v1", "Pod"))));
    measure("protobuf::decode", || drop(black_box(protobuf::decode(ty, black_box(&wire[raw.clone()])))));
    measure("serde_json::from_slice", || {
        drop(black_box(serde_json::from_slice::<serde_json::Value>(black_box(document))))
    });
}

/// The best of several rounds, since other work on the machine only ever adds.
fn measure(name: &str, mut operation: impl FnMut()) {
    const OPERATIONS: u32 = 50;
    if std::env::args().nth(1).is_some_and(|wanted| !name.contains(&wanted)) {
        return;
    }
    let round = |operation: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..OPERATIONS).for_each(|_| operation());
        start.elapsed() / OPERATIONS
    };
    let best = (0..400).map(|_| round(&mut operation)).min().unwrap_or_default();
    println!("{name:<28} {:>7.2} µs", best.as_nanos() as f64 / 1000.0);
}
