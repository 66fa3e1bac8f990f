use std::time::Instant;
use batch_types::pod;
use serde_json::json;
fn main() {
    let mut v = json!({"apiVersion":"v1","kind":"Pod","metadata":{"name":"demo-0-abcde","namespace":"default","uid":"u","labels":{"batch.kubernetes.io/controller-uid":"x","batch.kubernetes.io/job-name":"demo","controller-uid":"x","job-name":"demo","batch.kubernetes.io/job-completion-index":"0"},"annotations":{"batch.kubernetes.io/job-completion-index":"0"},"finalizers":["batch.kubernetes.io/job-tracking"],"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"demo","uid":"x","controller":true,"blockOwnerDeletion":true}]},
      "spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"images.example/app:1.0","command":["true"],"env":[{"name":"JOB_COMPLETION_INDEX","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['batch.kubernetes.io/job-completion-index']"}}}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"cpu":"1","memory":"128Mi"}},"volumeMounts":[{"name":"v","mountPath":"/v"}]}],"volumes":[{"name":"v","emptyDir":{}}]}});
    pod::default(&mut v);
    pod::admit_default_tolerations(&mut v);
    pod::admit_priority(&mut v, None).unwrap();
    pod::prepare_for_create(&mut v);
    let typed: k8s_openapi::api::core::v1::Pod = serde_json::from_value(v.clone()).unwrap();
    let n = 20000;
    let t = Instant::now();
    for _ in 0..n { assert!(pod::validate(std::hint::black_box(&typed)).is_empty()); }
    println!("validate {:?}", t.elapsed() / n);
    let t = Instant::now();
    for _ in 0..n { std::hint::black_box(pod::warnings(std::hint::black_box(&typed), None)); }
    println!("warnings {:?}", t.elapsed() / n);
    let t = Instant::now();
    for _ in 0..n { let mut w = std::hint::black_box(v.clone()); pod::default(&mut w); }
    println!("clone+default {:?}", t.elapsed() / n);
    let t = Instant::now();
    for _ in 0..n { std::hint::black_box(v.clone()); }
    println!("clone {:?}", t.elapsed() / n);
    let t = Instant::now();
    for _ in 0..n { let mut w = std::hint::black_box(v.clone()); pod::prepare_for_create(&mut w); }
    println!("clone+prepare {:?}", t.elapsed() / n);
    let t = Instant::now();
    for _ in 0..n { std::hint::black_box(pod::validate_status_update(&typed, &typed)); }
    println!("validate_status_update {:?}", t.elapsed() / n);
    let t = Instant::now();
    for _ in 0..n { std::hint::black_box(pod::validate_update(&typed, &typed)); }
    println!("validate_update {:?}", t.elapsed() / n);
    let t = Instant::now();
    for _ in 0..n { std::hint::black_box(serde_json::from_value::<k8s_openapi::api::core::v1::Pod>(v.clone()).unwrap()); }
    println!("to typed {:?}", t.elapsed() / n);
}
