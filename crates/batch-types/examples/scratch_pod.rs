use std::env;
use std::fs;

use batch_types::{field::Error, gates::Gates, job, meta, pod};
use serde_json::{Value, json};

fn merge(target: &mut Value, patch: &Value) {
    match patch {
        Value::Object(p) => {
            if !target.is_object() { *target = json!({}); }
            let t = target.as_object_mut().unwrap();
            for (k, v) in p {
                if v.is_null() { t.shift_remove(k); } else { merge(t.entry(k.clone()).or_insert(Value::Null), v); }
            }
        }
        other => *target = other.clone(),
    }
}
fn fill(v: &mut Value) {
    match v {
        Value::String(s) => {
            // {x*100}
            while let Some(a) = s.find('{') {
                let Some(b) = s[a..].find('}') else { break };
                let inner = &s[a+1..a+b];
                if let Some((c, n)) = inner.rsplit_once('*') && let Ok(n) = n.parse::<usize>() {
                    let r = c.repeat(n);
                    s.replace_range(a..a+b+1, &r);
                } else { break }
            }
        }
        Value::Array(a) => a.iter_mut().for_each(fill),
        Value::Object(o) => o.values_mut().for_each(fill),
        _ => {}
    }
}
fn decode(kind: (&str, &str), v: &Value) -> Result<Value, String> {
    let ty = api_schema::registry().kind(kind.0, kind.1).unwrap();
    let bytes = serde_json::to_vec(v).unwrap();
    api_schema::json::decode(ty, &bytes).map(|d| d.value).map_err(|e| e.to_string())
}
fn show(errors: &[Error]) -> Vec<(String, String)> {
    errors.iter().map(|e| (e.field.to_string(), e.text())).collect()
}
fn causes(body: &Value) -> Vec<(String, String)> {
    body["details"]["causes"].as_array().map(|a| a.iter().map(|c| (c["field"].as_str().unwrap_or("").into(), c["message"].as_str().unwrap_or("").into())).collect()).unwrap_or_default()
}
fn mask(list: Vec<(String, String)>) -> Vec<(String, String)> {
    list.into_iter().map(|(f, m)| {
        let mut m = m;
        if let Some(a) = m.find("Invalid value: {\"") {
            // mask json object
            let start = a + "Invalid value: ".len();
            let mut de = serde_json::Deserializer::from_str(&m[start..]).into_iter::<Value>();
            if let Some(Ok(_)) = de.next() { let end = start + de.byte_offset(); m.replace_range(start..end, "<object>"); }
        }
        if let Some(a) = m.find("previously negative)\n") { m.truncate(a + "previously negative)".len()); }
        (f, m)
    }).collect()
}
fn warnings(answer: &Value) -> Vec<String> {
    let h = &answer["headers"];
    let w = if h.get("warning").is_some() { &h["warning"] } else { &h["Warning"] };
    w.as_array().map(|a| a.iter().map(|s| { let s = s.as_str().unwrap(); let s = s.strip_prefix("299 - ").unwrap_or(s); serde_json::from_str::<String>(s).unwrap_or(s.to_owned()) }).collect()).unwrap_or_default()
}

fn main() {
    let dir = env::var("CONFORMANCE").unwrap();
    let verbose = env::var("V").is_ok();
    let (mut ok, mut bad, mut skipped) = (0, 0, 0);
    for area in env::args().skip(1) {
        let cases: Value = serde_json::from_str(&fs::read_to_string(format!("{dir}/{area}.json")).unwrap()).unwrap();
        let golden: Value = serde_json::from_str(&fs::read_to_string(format!("{dir}/golden/{area}.json")).unwrap().replace("<uid-1>", "uid-1").replace("{ns}", "kit-ns")).unwrap();
        for case in cases["cases"].as_array().unwrap() {
            let name = case["name"].as_str().unwrap();
            let answers = &golden["answers"][name];
            let mut stored: Option<Value> = None;
            let mut is_job = false;
            for (i, step) in case["steps"].as_array().unwrap().iter().enumerate() {
                let answer = &answers[i];
                let method = step["method"].as_str().unwrap_or("GET");
                let path = step["path"].as_str().unwrap_or("");
                let mut body = step["body"].clone();
                fill(&mut body);
                let text = body.to_string().replace("{uid}", "uid-1").replace("{rv}", "1").replace("{ns}", "kit-ns");
                body = serde_json::from_str(&text).unwrap();
                let ct = step["headers"]["Content-Type"].as_str().unwrap_or("application/json");
                let mut fail = |what: &str, want: String, got: String| { bad += 1; println!("FAIL {area}/{name}[{i}] {what}\n   want {want}\n   got  {got}"); };
                if method == "POST" && (path.ends_with("/jobs") || path.ends_with("/pods")) && body.is_object() {
                    is_job = path.ends_with("/jobs");
                    let kind = if is_job { ("batch/v1", "Job") } else { ("v1", "Pod") };
                    let Ok(mut object) = decode(kind, &body) else { skipped += 1; break };
                    object["apiVersion"] = kind.0.into(); object["kind"] = kind.1.into();
                    object["metadata"]["namespace"] = "kit-ns".into();
                    object["metadata"]["uid"] = "uid-1".into();
                    object["metadata"]["creationTimestamp"] = "2024-01-01T00:00:00Z".into();
                    if object["metadata"]["name"].as_str().unwrap_or("").is_empty() {
                        if let Some(g) = object["metadata"]["generateName"].as_str() { let n = format!("{g}bcdfg"); object["metadata"]["name"] = n.into(); }
                    }
                    let (errors, warns);
                    if is_job {
                        let defaulted = job::default(&mut object, &Gates::DEFAULT);
                        job::prepare_for_create(&mut object, &job::CreateFacts { uid: "uid-1", generated_name: body["metadata"]["name"].is_null(), defaulted, gates: &Gates::DEFAULT });
                        let typed: k8s_openapi::api::batch::v1::Job = serde_json::from_value(object.clone()).unwrap();
                        errors = job::validate(&typed);
                        warns = job::warnings_on_create(&typed);
                    } else {
                        pod::default(&mut object);
                        pod::admit_default_tolerations(&mut object);
                        let class = object["spec"]["priorityClassName"].as_str().filter(|n| *n == "system-node-critical").map(|n| pod::PriorityFacts { name: n.into(), value: 2000001000, preemption_policy: Some("PreemptLowerPriority".into()) });
                        if let Err(e) = pod::admit_priority(&mut object, class.as_ref()) {
                            let m = answer["body"]["message"].as_str().unwrap_or("");
                            if m.ends_with(&e) { ok += 1 } else { fail("admission", m.into(), e) }
                            break;
                        }
                        let mut w = pod::prepare_for_create(&mut object);
                        let typed: k8s_openapi::api::core::v1::Pod = serde_json::from_value(object.clone()).unwrap();
                        errors = pod::validate(&typed);
                        w.extend(pod::warnings(&typed, None));
                        warns = w;
                    }
                    let want = causes(&answer["body"]);
                    if answer["status"] == 422 {
                        let (w, g) = (mask(want), mask(show(&errors)));
                        if w == g { ok += 1 } else { fail("causes", format!("{w:#?}"), format!("{g:#?}")) }
                        break;
                    }
                    if answer["status"] != 201 { skipped += 1; if verbose { println!("skip {area}/{name} {}", answer["status"]); } break; }
                    if !errors.is_empty() { fail("unexpected errors", String::new(), format!("{:#?}", show(&errors))); break; }
                    if answer.get("body").is_some() {
                        let want = &answer["body"]["spec"];
                        if *want == object["spec"] { ok += 1 } else { fail("spec", serde_json::to_string(want).unwrap(), serde_json::to_string(&object["spec"]).unwrap()) }
                        if !is_job {
                            let mut got = object["status"].clone();
                            let _ = &mut got;
                            if answer["body"]["status"] != got { fail("status", answer["body"]["status"].to_string(), got.to_string()) }
                        }
                        let w = warnings(answer);
                        if w != warns { fail("warnings", format!("{w:#?}"), format!("{warns:#?}")) }
                    }
                    object["metadata"]["resourceVersion"] = "1".into(); stored = Some(object);
                    continue;
                }
                if is_job { break; }
                let Some(old) = stored.clone() else { break };
                let status = path.ends_with("/status");
                if !(status || path.ends_with("/demo")) || !["PUT", "PATCH"].contains(&method) || !(ct.contains("merge-patch+json") && !ct.contains("strategic") || method == "PUT") {
                    if method == "GET" { continue }
                    skipped += 1; if verbose { println!("skip {area}/{name}[{i}] {method} {path} {ct}"); } break;
                }
                let mut new = old.clone();
                if method == "PUT" { new = body.clone(); } else { merge(&mut new, &body); }
                let Ok(mut new) = decode(("v1", "Pod"), &new) else { skipped += 1; break };
                new["metadata"]["namespace"] = "kit-ns".into();
                pod::default(&mut new);
                if !status { pod::admit_default_tolerations(&mut new); pod::admit_priority_update(&mut new, &old); }
                if status { pod::prepare_for_status_update(&mut new, &old) } else { pod::prepare_for_update(&mut new, &old) }
                meta::restore_system_fields(&mut { new["metadata"].clone() }, &old);
                new["metadata"]["resourceVersion"] = "1".into(); for k in ["uid", "creationTimestamp"] { if new["metadata"].get(k).is_none() { let v = old["metadata"][k].clone(); new["metadata"][k] = v; } }
                let n: k8s_openapi::api::core::v1::Pod = serde_json::from_value(new.clone()).unwrap();
                let o: k8s_openapi::api::core::v1::Pod = serde_json::from_value(old.clone()).unwrap();
                let mut errors = meta::validate_common_update(&n.metadata, &o.metadata, meta::Scope::Namespaced);
                errors.extend(if status { pod::validate_status_update(&n, &o) } else { pod::validate_update(&n, &o) });
                if answer["status"] == 422 {
                    let (w, g) = (mask(causes(&answer["body"])), mask(show(&errors)));
                    if w == g { ok += 1 } else { fail("causes", format!("{w:#?}"), format!("{g:#?}")) }
                    continue;
                }
                if answer["status"] != 200 { skipped += 1; if verbose { println!("skip {area}/{name}[{i}] {}", answer["status"]); } break; }
                if !errors.is_empty() { fail("unexpected errors", String::new(), format!("{:#?}", show(&errors))); break; }
                if answer.get("body").is_some() {
                    for key in ["spec", "status"] {
                        let want = &answer["body"][key];
                        if *want == new[key] { ok += 1 } else { fail(key, want.to_string(), new[key].to_string()) }
                    }
                    if answer["body"]["metadata"]["generation"] != new["metadata"]["generation"] { fail("generation", answer["body"]["metadata"]["generation"].to_string(), new["metadata"]["generation"].to_string()) }
                }
                stored = Some(new);
            }
        }
    }
    println!("{ok} ok, {bad} bad, {skipped} skipped");
}
