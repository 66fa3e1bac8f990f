//! Who may do what, over the wire: credentials, roles, impersonation, reviews, tokens (AS-56…AS-66, BI-20…BI-22).

#![allow(clippy::unwrap_used, reason = "a panic here is a failed test")]

mod common;

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use common::{Answer, Api, TOKEN, job};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Somebody outside the process, with these headers.
struct Caller<'a> {
    api: &'a Api,
    headers: Vec<(String, String)>,
}

impl Caller<'_> {
    async fn send(&self, method: &str, path: &str, body: Value) -> Answer {
        let mut request = Request::builder().method(method.parse::<Method>().unwrap()).uri(path);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = request.header("content-type", content_type).body(Full::new(Bytes::from(text))).unwrap();
        let (parts, body) = self.api.server.handle(request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
        Answer { code: parts.status.as_u16(), warnings: Vec::new(), body }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, Value::Null).await
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, body).await
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

fn anonymous(api: &Api) -> Caller<'_> {
    Caller { api, headers: Vec::new() }
}

fn bearing<'a>(api: &'a Api, token: &str) -> Caller<'a> {
    anonymous(api).with("authorization", &format!("Bearer {token}"))
}

fn admin(api: &Api) -> Caller<'_> {
    bearing(api, TOKEN)
}

fn acting_as<'a>(api: &'a Api, user: &str) -> Caller<'a> {
    admin(api).with("impersonate-user", user)
}

fn message(answer: &Answer) -> &str {
    answer.body["message"].as_str().unwrap_or_default()
}

fn reads_jobs() -> Value {
    json!([{"verbs": ["get", "list", "watch"], "apiGroups": ["batch"], "resources": ["jobs"]}])
}

async fn create_role(api: &Api, name: &str, rules: Value) {
    let body = json!({"metadata": {"name": name}, "rules": rules});
    api.post(&format!("{RBAC}/namespaces/default/roles"), body).await.expect(201);
}

async fn bind(api: &Api, name: &str, role: Value, subject: Value) {
    let body = json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]});
    api.post(&format!("{RBAC}/namespaces/default/rolebindings"), body).await.expect(201);
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "name": name})
}

fn role(name: &str) -> Value {
    json!({"kind": "Role", "name": name})
}

fn cluster_role(name: &str) -> Value {
    json!({"kind": "ClusterRole", "name": name})
}

/// A new token of an account.
async fn token_of(api: &Api, account: &str, request: Value) -> String {
    let answer = api.post(&format!("{ACCOUNTS}/{account}/token"), request).await.expect(201);
    answer.body["status"]["token"].as_str().unwrap().to_owned()
}

async fn create_account(api: &Api, name: &str) {
    api.post(ACCOUNTS, json!({"metadata": {"name": name}})).await.expect(201);
}

fn claims(token: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap()
}

/// BI-20, BI-22, AS-56, AS-57, INV-51.
#[tokio::test]
async fn credentials_decide_between_401_and_403() {
    let api = Api::new().await;
    for path in ["/version", "/healthz", "/livez", "/readyz"] {
        anonymous(&api).get(path).await.expect(200);
    }
    for path in ["/metrics", "/apis", "/openapi/v2", "/api/v1/pods"] {
        anonymous(&api).get(path).await.expect(403);
    }
    let refused = bearing(&api, "wrong").get("/healthz").await.expect(401);
    assert_eq!(
        refused.body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized",
               "reason": "Unauthorized", "code": 401})
    );
    admin(&api).get("/api/v1/pods").await.expect(200);
    // BI-21: these are no credentials.
    anonymous(&api).get(&format!("/api/v1/pods?access_token={TOKEN}&token={TOKEN}")).await.expect(403);
    anonymous(&api).with("authorization", "Basic YWRtaW46eA==").get("/api/v1/pods").await.expect(403);
    let headed = anonymous(&api).with("x-remote-user", "admin").with("x-remote-group", "system:masters");
    headed.get("/api/v1/pods").await.expect(403);
}

/// AS-60, AS-61: a right is there as soon as the write that gives it is answered, and gone as soon.
#[tokio::test]
async fn roles_give_rights_through_bindings() {
    let api = Api::new().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let ann = acting_as(&api, "ann");
    let refused = ann.get(jobs).await.expect(403);
    assert_eq!(
        message(&refused),
        r#"jobs.batch is forbidden: User "ann" cannot list resource "jobs" in API group "batch" in the namespace "default""#
    );
    assert_eq!(refused.body["details"], json!({"group": "batch", "kind": "jobs"}));

    bind(&api, "readers", role("reader"), user("ann")).await;
    let refused = ann.get(jobs).await.expect(403);
    assert!(message(&refused).ends_with(r#": RBAC: role.rbac.authorization.k8s.io "reader" not found"#));

    create_role(&api, "reader", reads_jobs()).await;
    ann.get(jobs).await.expect(200);
    ann.post(jobs, job("x")).await.expect(403);
    ann.get("/apis/batch/v1/jobs").await.expect(403);
    acting_as(&api, "bob").get(jobs).await.expect(403);

    api.delete(&format!("{RBAC}/namespaces/default/rolebindings/readers"), json!({})).await.expect(200);
    ann.get(jobs).await.expect(403);
}

/// AS-60: names restrict, and a field selector can supply one.
#[tokio::test]
async fn rules_for_names_match_lists_of_that_name() {
    let api = Api::new().await;
    let rule = json!([{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps"],
                       "resourceNames": ["a"]}]);
    create_role(&api, "one", rule).await;
    bind(&api, "one", role("one"), user("ann")).await;
    let ann = acting_as(&api, "ann");
    let maps = "/api/v1/namespaces/default/configmaps";
    ann.get(&format!("{maps}/a")).await.expect(404);
    ann.get(&format!("{maps}/b")).await.expect(403);
    ann.get(maps).await.expect(403);
    ann.get(&format!("{maps}?fieldSelector=metadata.name%3Da")).await.expect(200);
    ann.get(&format!("{maps}?fieldSelector=metadata.name%3Db")).await.expect(403);
    ann.get(&format!("{maps}?fieldSelector=metadata.name!%3Da")).await.expect(403);
}

/// What a client sends and gets back; tables as upstream prints them.
#[tokio::test]
async fn roles_and_bindings_are_served_with_every_verb() {
    let api = Api::new().await;
    for (path, body) in [
        (format!("{RBAC}/namespaces/default/roles"), json!({"rules": reads_jobs()})),
        (format!("{RBAC}/clusterroles"), json!({"rules": reads_jobs()})),
        (
            format!("{RBAC}/namespaces/default/rolebindings"),
            json!({"roleRef": role("r"), "subjects": [user("ann"), {"kind": "ServiceAccount", "name": "s"}]}),
        ),
        (format!("{RBAC}/clusterrolebindings"), json!({"roleRef": cluster_role("r"), "subjects": [user("ann")]})),
    ] {
        let named = |name: &str| {
            let mut body = body.clone();
            body["metadata"] = json!({"name": name});
            body
        };
        let made = api.post(&path, named("a")).await.expect(201).body;
        let one = format!("{path}/a");
        assert_eq!(api.get(&one).await.expect(200).body, made);
        let labelled = json!({"metadata": {"labels": {"x": "y"}}});
        assert_eq!(api.merge(&one, labelled).await.expect(200).body["metadata"]["labels"], json!({"x": "y"}));
        api.put(&one, named("a")).await.expect(200);
        // AS-111: these kinds are created by PUT.
        api.put(&format!("{path}/b"), named("b")).await.expect(201);
        let applied = format!("{path}/c?fieldManager=me");
        let mut config = named("c");
        config["apiVersion"] = made["apiVersion"].clone();
        config["kind"] = made["kind"].clone();
        api.send(Method::PATCH, &applied, "application/apply-patch+yaml", &config.to_string()).await.expect(201);
        let list = api.get(&format!("{path}?labelSelector=!kubernetes.io/bootstrapping")).await.expect(200);
        assert_eq!(list.names(), ["a", "b", "c"], "{path}");
        api.delete(&one, json!({})).await.expect(200);
        api.delete(&format!("{path}?labelSelector=!kubernetes.io/bootstrapping"), json!({})).await.expect(200);
    }
}

#[tokio::test]
async fn bindings_are_completed_and_their_role_stays() {
    let api = Api::new().await;
    bind(&api, "b", role("r"), user("ann")).await;
    let path = format!("{RBAC}/namespaces/default/rolebindings/b");
    let binding = api.get(&path).await.expect(200).body;
    assert_eq!(binding["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(binding["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    let changed = api.merge(&path, json!({"roleRef": {"name": "q"}})).await.expect(422);
    assert!(message(&changed).ends_with(": cannot change roleRef"), "{}", message(&changed));
    let headers = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = api.raw(Method::GET, &path, &headers, "").await.into_body().collect().await.unwrap().to_bytes();
    let table: Value = serde_json::from_slice(&table).unwrap();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!([&cells[0], &cells[1], &cells[3]], [&json!("b"), &json!("Role/r"), &json!("ann")]);
}

/// Nobody grants what they do not have.
#[tokio::test]
async fn rights_cannot_be_multiplied() {
    let api = Api::new().await;
    bind(&api, "admins", cluster_role("admin"), user("ann")).await;
    let ann = acting_as(&api, "ann");
    let roles = format!("{RBAC}/namespaces/default/roles");
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");

    // What she has she may pass on.
    ann.post(&roles, json!({"metadata": {"name": "mine"}, "rules": reads_jobs()})).await.expect(201);
    let passed = json!({"metadata": {"name": "pass"}, "roleRef": role("mine"), "subjects": [user("bob")]});
    ann.post(&bindings, passed).await.expect(201);

    let nodes = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["nodes"]}]);
    let more = json!({"metadata": {"name": "more"}, "rules": nodes});
    let refused = ann.post(&roles, more.clone()).await.expect(403);
    assert_eq!(
        message(&refused),
        "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"ann\" (groups=[\"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"nodes\"], \
         Verbs:[\"get\" \"list\"]}"
    );
    let grown = ann.send("PATCH", &format!("{roles}/mine"), json!({"rules": nodes})).await;
    assert_eq!(grown.code, 403, "{:#}", grown.body);
    ann.send("PUT", &format!("{roles}/more"), more.clone()).await.expect(403);
    let shrunk = ann.send("PATCH", &format!("{roles}/mine"), json!({"metadata": {"labels": {"a": "b"}}})).await;
    shrunk.expect(200);

    let all = json!({"metadata": {"name": "all"}, "roleRef": cluster_role("cluster-admin"), "subjects": [user("ann")]});
    let refused = ann.post(&bindings, all.clone()).await.expect(403);
    assert!(message(&refused).contains("is attempting to grant RBAC permissions not currently held:\n"));
    let missing = json!({"metadata": {"name": "no"}, "roleRef": role("no"), "subjects": []});
    let refused = ann.post(&bindings, missing).await.expect(404);
    assert_eq!(message(&refused), "role.rbac.authorization.k8s.io \"no\" not found");

    // `escalate` and `bind` lift this.
    let verbs = json!([{"verbs": ["escalate", "bind"], "apiGroups": ["rbac.authorization.k8s.io"],
                        "resources": ["roles", "clusterroles"]}]);
    create_role(&api, "lift", verbs).await;
    bind(&api, "lift", role("lift"), user("ann")).await;
    ann.post(&roles, more).await.expect(201);
    ann.post(&bindings, all).await.expect(201);
}

/// The right to update alone does not create.
#[tokio::test]
async fn creating_by_put_or_apply_needs_the_right_to_create() {
    let api = Api::new().await;
    let rule = json!([{"verbs": ["update", "patch"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}]);
    create_role(&api, "updater", rule).await;
    bind(&api, "updater", role("updater"), user("ann")).await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let refused = acting_as(&api, "ann").send("PUT", path, lease).await.expect(403);
    assert_eq!(
        message(&refused),
        "leases.coordination.k8s.io \"l\" is forbidden: User \"ann\" cannot create resource \"leases\" in API group \
         \"coordination.k8s.io\" in the namespace \"default\""
    );
}

async fn whoami(caller: Caller<'_>) -> Answer {
    caller.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({})).await
}

/// AS-59.
#[tokio::test]
async fn impersonation_needs_the_right_to_it() {
    let api = Api::new().await;
    let ann = acting_as(&api, "ann").with("impersonate-group", "ops").with("impersonate-uid", "u1");
    let ann = ann.with("impersonate-extra-acme.com%2fproject", "p1").with("impersonate-extra-acme.com%2fproject", "p2");
    assert_eq!(
        whoami(ann).await.expect(201).body["status"]["userInfo"],
        json!({"username": "ann", "uid": "u1", "groups": ["ops", "system:authenticated"],
               "extra": {"acme.com/project": ["p1", "p2"]}})
    );
    let account = acting_as(&api, "system:serviceaccount:a:b");
    assert_eq!(
        whoami(account).await.expect(201).body["status"]["userInfo"]["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"])
    );
    let nobody = admin(&api).with("impersonate-group", "ops");
    whoami(nobody).await.expect(400);

    // Somebody without the right, by a token of their own.
    create_account(&api, "worker").await;
    let token = token_of(&api, "worker", json!({})).await;
    let refused = whoami(bearing(&api, &token).with("impersonate-user", "ann")).await.expect(403);
    assert_eq!(
        message(&refused),
        "selfsubjectreviews.authentication.k8s.io is forbidden: User \"system:serviceaccount:default:worker\" cannot \
         impersonate-on:user-info:create resource \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at the \
         cluster scope"
    );
    let rules =
        json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["ann"]}]);
    api.post(&format!("{RBAC}/clusterroles"), json!({"metadata": {"name": "as-ann"}, "rules": rules}))
        .await
        .expect(201);
    let subject = json!([{"kind": "ServiceAccount", "name": "worker", "namespace": "default"}]);
    let binding = json!({"metadata": {"name": "as-ann"}, "roleRef": cluster_role("as-ann"), "subjects": subject});
    api.post(&format!("{RBAC}/clusterrolebindings"), binding).await.expect(201);
    whoami(bearing(&api, &token).with("impersonate-user", "ann")).await.expect(201);
    whoami(bearing(&api, &token).with("impersonate-user", "bob")).await.expect(403);
    let masters = bearing(&api, &token).with("impersonate-user", "ann").with("impersonate-group", "system:masters");
    whoami(masters).await.expect(403);
}

/// Constrained impersonation: the right to be somebody, for one thing only.
#[tokio::test]
async fn impersonation_can_be_constrained_to_a_verb() {
    let api = Api::new().await;
    create_account(&api, "worker").await;
    let worker = json!([{"kind": "ServiceAccount", "name": "worker", "namespace": "default"}]);
    let rules = json!([
        {"verbs": ["impersonate:user-info"], "apiGroups": ["authentication.k8s.io"], "resources": ["users"]},
        {"verbs": ["impersonate-on:user-info:list"], "apiGroups": ["batch"], "resources": ["jobs"]},
    ]);
    api.post(&format!("{RBAC}/clusterroles"), json!({"metadata": {"name": "c"}, "rules": rules})).await.expect(201);
    let binding = json!({"metadata": {"name": "c"}, "roleRef": cluster_role("c"), "subjects": worker});
    api.post(&format!("{RBAC}/clusterrolebindings"), binding).await.expect(201);
    bind(&api, "edit", cluster_role("edit"), user("ann")).await;
    let token = token_of(&api, "worker", json!({})).await;
    let as_ann = bearing(&api, &token).with("impersonate-user", "ann");
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    as_ann.get(jobs).await.expect(200);
    as_ann.post(jobs, job("x")).await.expect(403);
}

/// AS-62, AS-63.
#[tokio::test]
async fn reviews_answer_what_the_server_would_do() {
    let api = Api::new().await;
    create_role(&api, "reader", reads_jobs()).await;
    bind(&api, "readers", role("reader"), user("ann")).await;
    let about = |verb: &str| json!({"resourceAttributes": {"namespace": "default", "verb": verb, "group": "batch", "resource": "jobs"}});
    let reviews = format!("{AUTHORIZATION}/selfsubjectaccessreviews");
    let ann = acting_as(&api, "ann");
    let allowed = ann.post(&reviews, json!({"spec": about("list")})).await.expect(201);
    assert_eq!(
        allowed.body["status"],
        json!({"allowed": true,
               "reason": "RBAC: allowed by RoleBinding \"readers/default\" of Role \"reader\" to User \"ann\""})
    );
    let denied = ann.post(&reviews, json!({"spec": about("create")})).await.expect(201);
    assert_eq!(denied.body["status"], json!({"allowed": false}));

    let mut spec = about("list");
    spec["user"] = json!("ann");
    let other = format!("{AUTHORIZATION}/subjectaccessreviews");
    assert_eq!(api.post(&other, json!({"spec": spec})).await.expect(201).body["status"]["allowed"], true);
    ann.post(&other, json!({"spec": spec})).await.expect(403);
    let nobody = api.post(&other, json!({"spec": about("list")})).await.expect(422);
    assert_eq!(
        message(&nobody),
        ".authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": at least one of user or group must be \
         specified"
    );
    let local = format!("{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews");
    assert_eq!(api.post(&local, json!({"spec": spec})).await.expect(201).body["status"]["allowed"], true);
    spec["resourceAttributes"]["namespace"] = json!("other");
    api.post(&local, json!({"spec": spec})).await.expect(422);

    let rules = format!("{AUTHORIZATION}/selfsubjectrulesreviews");
    let listed = ann.post(&rules, json!({"spec": {"namespace": "default"}})).await.expect(201).body;
    assert_eq!(listed["spec"], json!({}));
    assert!(listed["status"]["resourceRules"].as_array().unwrap().contains(&reads_jobs()[0]), "{listed:#}");
    assert!(!listed["status"]["nonResourceRules"].as_array().unwrap().is_empty());
    ann.post(&rules, json!({"spec": {}})).await.expect(400);
    let all = admin(&api).post(&rules, json!({"spec": {"namespace": "default"}})).await.expect(201).body;
    assert_eq!(all["status"]["resourceRules"][0], json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
}

/// AS-58, AS-65.
#[tokio::test]
async fn tokens_stand_for_their_account() {
    let api = Api::new().await;
    create_account(&api, "worker").await;
    let request = api.post(&format!("{ACCOUNTS}/worker/token"), json!({})).await.expect(201).body;
    assert_eq!(request["kind"], "TokenRequest");
    assert_eq!(request["spec"], json!({"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null}));
    let token = request["status"]["token"].as_str().unwrap();
    let uid = api.get(&format!("{ACCOUNTS}/worker")).await.body["metadata"]["uid"].clone();
    let said = claims(token);
    assert_eq!(said["sub"], "system:serviceaccount:default:worker");
    assert_eq!(
        said["kubernetes.io"],
        json!({"namespace": "default", "serviceaccount": {"name": "worker", "uid": uid}})
    );
    assert_eq!(said["exp"].as_i64().unwrap() - said["iat"].as_i64().unwrap(), 3600);

    let worker = bearing(&api, token);
    let info = worker.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({})).await.expect(201).body;
    let info = &info["status"]["userInfo"];
    assert_eq!(info["username"], "system:serviceaccount:default:worker");
    assert_eq!(info["uid"], uid);
    assert_eq!(
        info["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"])
    );
    assert_eq!(
        info["extra"]["authentication.kubernetes.io/credential-id"][0],
        json!(format!("JTI={}", said["jti"].as_str().unwrap()))
    );

    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    worker.get(jobs).await.expect(403);
    bind(&api, "view", cluster_role("view"), json!({"kind": "ServiceAccount", "name": "worker"})).await;
    worker.get(jobs).await.expect(200);

    // The account ends the token, and an account of the same name is another one.
    api.delete(&format!("{ACCOUNTS}/worker"), json!({})).await.expect(200);
    worker.get(jobs).await.expect(401);
    create_account(&api, "worker").await;
    worker.get(jobs).await.expect(401);
}

#[tokio::test]
async fn tokens_are_for_their_audience() {
    let api = Api::new().await;
    create_account(&api, "worker").await;
    let token = token_of(&api, "worker", json!({"spec": {"audiences": ["vault"]}})).await;
    bearing(&api, &token).get("/api").await.expect(401);
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = |audiences: Value| json!({"spec": {"token": token, "audiences": audiences}});
    let known = api.post(reviews, review(json!(["vault", "other"]))).await.expect(201).body;
    assert_eq!(known["status"]["authenticated"], true);
    assert_eq!(known["status"]["audiences"], json!(["vault"]));
    assert_eq!(known["status"]["user"]["username"], "system:serviceaccount:default:worker");
    let unknown = api.post(reviews, review(json!([]))).await.expect(201).body;
    assert_eq!(
        unknown["status"],
        json!({"user": {}, "error": format!("token audiences [\"vault\"] is invalid for the target audiences [\"{ISSUER}\"]")})
    );
    let rubbish = api.post(reviews, json!({"spec": {"token": "rubbish"}})).await.expect(201).body;
    assert_eq!(rubbish["status"], json!({"user": {}, "error": "invalid bearer token"}));
    let own = api.post(reviews, json!({"spec": {"token": TOKEN}})).await.expect(201).body;
    assert_eq!(own["status"]["user"]["groups"], json!(["system:masters", "system:authenticated"]));
    api.post(reviews, json!({"spec": {}})).await.expect(400);
}

#[tokio::test]
async fn token_requests_are_checked() {
    let api = Api::new().await;
    create_account(&api, "worker").await;
    let path = format!("{ACCOUNTS}/worker/token");
    let cases = [
        (json!({"spec": {"expirationSeconds": 599}}), 422, "may not specify a duration less than 10 minutes"),
        (
            json!({"spec": {"expirationSeconds": (1_i64 << 32) + 1}}),
            422,
            "may not specify a duration larger than 2^32 seconds",
        ),
        (json!({"metadata": {"name": "other"}}), 422, "must match the service account name if specified"),
        (json!({"metadata": {"uid": "other"}}), 409, "the UID in the token request (other) does not match"),
        (
            json!({"spec": {"boundObjectRef": {"kind": "Job", "apiVersion": "batch/v1", "name": "x"}}}),
            400,
            "cannot bind token to object of type batch/v1, Kind=Job",
        ),
        (
            json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "x"}}}),
            404,
            "pods \"x\" not found",
        ),
    ];
    for (request, code, expected) in cases {
        let refused = api.post(&path, request).await.expect(code);
        assert!(message(&refused).contains(expected), "{}", message(&refused));
    }
    api.post(&format!("{ACCOUNTS}/nobody/token"), json!({})).await.expect(404);
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (member, value) in spec.as_object().unwrap() {
        pod["spec"][member] = value.clone();
    }
    pod
}

/// A token that is bound to a pod ends with it, and says which pod and node it is for.
#[tokio::test]
async fn bound_tokens_end_with_their_pod() {
    let api = Api::new().await;
    create_account(&api, "worker").await;
    create_account(&api, "other").await;
    let pods = "/api/v1/namespaces/default/pods";
    let body = pod("p", json!({"serviceAccountName": "worker", "nodeName": "n1"}));
    let made = api.post(pods, body).await.expect(201).body;
    let bound = |uid: &Value| {
        json!({"spec": {"expirationSeconds": 3607,
                        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": uid}}})
    };
    let uid = &made["metadata"]["uid"];
    let token = token_of(&api, "worker", bound(uid)).await;
    let said = claims(&token);
    assert_eq!(said["kubernetes.io"]["pod"], json!({"name": "p", "uid": uid}));
    assert_eq!(said["kubernetes.io"]["node"], json!({"name": "n1"}));
    // What pods mount is valid for a year, and says that it should have been renewed after an hour.
    assert_eq!(said["exp"].as_i64().unwrap() - said["iat"].as_i64().unwrap(), 365 * 24 * 3600);
    assert_eq!(said["kubernetes.io"]["warnafter"].as_i64().unwrap() - said["iat"].as_i64().unwrap(), 3607);
    let refused = api.post(&format!("{ACCOUNTS}/other/token"), bound(uid)).await.expect(400);
    assert!(message(&refused).contains("pod running with different serviceaccount name."));
    api.post(&format!("{ACCOUNTS}/worker/token"), bound(&json!("stale"))).await.expect(409);

    let worker = bearing(&api, &token);
    worker.get("/api").await.expect(200);
    api.delete(&format!("{pods}/p"), json!({"gracePeriodSeconds": 0})).await.expect(200);
    worker.get("/api").await.expect(401);
}

/// AS-222.
#[tokio::test]
async fn pods_run_as_an_account_of_their_namespace() {
    let api = Api::new().await;
    let pods = "/api/v1/namespaces/default/pods";
    // Before the account `default` is made, pods get it without a token.
    let early = api.post(pods, pod("early", json!({}))).await.expect(201).body;
    assert_eq!(early["spec"]["serviceAccountName"], "default");
    assert_eq!(early["spec"].get("volumes"), None);
    let refused = api.post(pods, pod("p", json!({"serviceAccountName": "nobody"}))).await.expect(403);
    assert_eq!(
        message(&refused),
        "pods \"p\" is forbidden: error looking up service account default/nobody: serviceaccount \"nobody\" not found"
    );
    // So do later ones, until that account is granted something.
    create_account(&api, "default").await;
    let late = api.post(pods, pod("late", json!({}))).await.expect(201).body;
    assert_eq!(late["spec"].get("volumes"), None);
    let asked = pod("asked", json!({"automountServiceAccountToken": true}));
    assert!(api.post(pods, asked).await.expect(201).body["spec"]["volumes"].is_array());
    bind(&api, "view", cluster_role("view"), json!({"kind": "ServiceAccount", "name": "default"})).await;
    let granted = api.post(pods, pod("granted", json!({}))).await.expect(201).body;
    assert!(granted["spec"]["volumes"].is_array());

    create_account(&api, "worker").await;
    let made = api.post(pods, pod("p", json!({"serviceAccountName": "worker"}))).await.expect(201).body;
    let volume = &made["spec"]["volumes"][0];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-"), "{name}");
    assert_eq!(
        made["spec"]["containers"][0]["volumeMounts"],
        json!([{"name": name, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}])
    );
    assert_eq!(volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
    let without = pod("q", json!({"serviceAccountName": "worker", "automountServiceAccountToken": false}));
    assert_eq!(api.post(pods, without).await.expect(201).body["spec"].get("volumes"), None);
    api.merge(&format!("{ACCOUNTS}/worker"), json!({"automountServiceAccountToken": false})).await.expect(200);
    let none = api.post(pods, pod("r", json!({"serviceAccountName": "worker"}))).await.expect(201).body;
    assert_eq!(none["spec"].get("volumes"), None);
}

/// Expired tokens are refused, after a minute of leeway.
#[tokio::test]
async fn tokens_end_with_their_time() {
    use std::sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    };
    let offset = Arc::new(AtomicI64::new(0));
    let clock = Arc::clone(&offset);
    let now = move || jiff::Timestamp::now() + Duration::from_secs(clock.load(Ordering::Relaxed).unsigned_abs());
    let environment = apiserver::Environment::new(now, || uuid::Uuid::new_v4().as_u128());
    let api = Api::in_environment(environment).await;
    create_account(&api, "worker").await;
    let token = token_of(&api, "worker", json!({"spec": {"expirationSeconds": 600}})).await;
    for (seconds, code) in [(0, 200), (630, 200), (700, 401)] {
        offset.store(seconds, Ordering::Relaxed);
        bearing(&api, &token).get("/api").await.expect(code);
    }
}

/// Everybody's own rights are theirs to lose: the defaults come back at the next start, unless they are told not to.
#[tokio::test]
async fn default_roles_are_completed_when_the_server_starts() {
    let api = Api::new().await;
    let [kept, loose] =
        ["system:discovery", "system:basic-user"].map(|name| format!("{RBAC}/clusterrolebindings/{name}"));
    for path in [&kept, &loose] {
        api.merge(path, json!({"subjects": null})).await.expect(200);
    }
    let off = json!({"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}});
    api.merge(&loose, off).await.expect(200);
    let again = api.restarted().await;
    assert!(again.get(&kept).await.body["subjects"].is_array());
    assert!(again.get(&loose).await.body["subjects"].is_null());
}

#[tokio::test]
async fn the_key_of_tokens_is_published_to_accounts() {
    let api = Api::new().await;
    create_account(&api, "worker").await;
    let token = token_of(&api, "worker", json!({})).await;
    let worker = bearing(&api, &token);
    let document = worker.get("/.well-known/openid-configuration").await.expect(200).body;
    assert_eq!(document["issuer"], ISSUER);
    let keys = worker.get("/openid/v1/jwks").await.expect(200).body;
    let header: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap()).unwrap();
    assert_eq!(keys["keys"][0]["kid"], header["kid"]);
    anonymous(&api).get("/openid/v1/jwks").await.expect(403);
}
