//! From credentials to a user (AS-56, AS-57).
//!
//! Two kinds of bearer tokens are known: the administrator's, and those of ServiceAccounts. Nothing else in a request
//! says who sends it: no query parameter, no basic authentication, no proxy header (BI-21).

use std::{fmt, sync::Arc};

use http::{HeaderMap, header};
use sha2::{Digest, Sha256};

use super::{
    service_account::{self, Authenticated},
    token::ISSUER,
    user::{AUTHENTICATED, User},
};
use crate::{server::State, status::Status};

/// Checks credentials. Only a digest of the token is kept, so that it cannot leak into logs or dumps.
pub struct Authenticator {
    admin: Option<[u8; 32]>,
}

impl Authenticator {
    pub fn new(admin_token: Option<String>) -> Self {
        Self { admin: admin_token.map(|token| digest(&token)) }
    }

    /// Whether there is an administrator; otherwise the server has no callers but those of its own process.
    pub fn knows_anybody(&self) -> bool {
        self.admin.is_some()
    }

    /// A wrong bearer token is refused everywhere; no token at all is the anonymous user (AS-56).
    pub fn authenticate(&self, headers: &HeaderMap, state: &State) -> Result<Arc<User>, Status> {
        let Some(token) = bearer_token(headers)? else { return Ok(User::anonymous()) };
        match self.review(token, &[ISSUER.to_owned()], state) {
            Ok(authenticated) => Ok(authenticated.user),
            Err(reason) => {
                tracing::debug!(reason, "a token is refused");
                Err(Status::unauthorized())
            }
        }
    }

    /// Whose token it is, and for which of the wanted audiences it is meant; or why nobody's.
    pub fn review(&self, token: &str, audiences: &[String], state: &State) -> Result<Authenticated, String> {
        // Digests are compared, so the time taken tells nothing about the token.
        if self.admin.is_some_and(|admin| admin == digest(token)) && audiences.iter().any(|wanted| wanted == ISSUER) {
            return Ok(Authenticated { user: User::administrator(), audiences: vec![ISSUER.to_owned()] });
        }
        let authenticated = service_account::authenticate(token, audiences, state)?;
        let mut user = authenticated.user;
        Arc::make_mut(&mut user).groups.push(AUTHENTICATED.to_owned());
        Ok(Authenticated { user, ..authenticated })
    }
}

/// The bearer token of a request; `None` when there is no such thing in it.
fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, Status> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let text = value.to_str().map_err(|_| Status::unauthorized())?;
    let mut words = text.trim().splitn(3, ' ');
    let is_bearer = words.next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"));
    Ok(words.next().filter(|token| is_bearer && !token.is_empty()))
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authenticator")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bearer_tokens_are_credentials() {
        for (value, token) in [
            ("Bearer secret", Some("secret")),
            ("bearer secret", Some("secret")),
            ("  Bearer secret ", Some("secret")),
            ("Bearer secret trailing", Some("secret")),
            ("Bearer  secret", None),
            ("Bearer", None),
            ("Basic eDp5", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            assert_eq!(bearer_token(&headers).unwrap(), token, "{value:?}");
        }
        assert_eq!(bearer_token(&HeaderMap::new()).unwrap(), None);
    }
}
