"""What is below the API: TLS, credentials, HTTP."""

import json
import ssl
import urllib.error
import urllib.request

from harness import Kit, case, contains, same


def ask(kit: Kit, path: str, **headers: str):
    return kit.cluster.request("GET", path, **headers)


@case
def health_and_version_need_no_credentials(kit: Kit):
    for path in ("/healthz", "/livez", "/readyz"):
        same(ask(kit, path), (200, "ok"))
    status, body = ask(kit, "/version")
    same((status, json.loads(body)["gitVersion"].split(".")[:2]), (200, ["v1", "36"]))


@case
def anything_else_needs_them(kit: Kit):
    status, body = ask(kit, "/api/v1/namespaces")
    same(status, 403)
    contains(json.loads(body)["message"], 'User "system:anonymous" cannot list resource "namespaces"')


@case
def a_wrong_token_is_refused_everywhere(kit: Kit):
    for path in ("/healthz", "/api/v1/namespaces"):
        status, body = ask(kit, path, Authorization="Bearer " + "0" * 64)
        same((status, json.loads(body)["reason"]), (401, "Unauthorized"))


@case
def the_certificate_is_checked_by_name(kit: Kit):
    port = kit.cluster.server.rsplit(":", 1)[1]
    context = ssl.create_default_context(cadata=kit.cluster.authority)
    for name in ("localhost", "127.0.0.1"):
        with urllib.request.urlopen(f"https://{name}:{port}/healthz", context=context, timeout=30) as response:
            same(response.status, 200)


@case
def plain_http_is_told_so(kit: Kit):
    try:
        urllib.request.urlopen(kit.cluster.server.replace("https", "http") + "/healthz", timeout=30)
    except urllib.error.HTTPError as error:
        same((error.code, error.read().decode()), (400, "Client sent an HTTP request to an HTTPS server.\n"))
    else:
        raise AssertionError("plain HTTP was answered")
