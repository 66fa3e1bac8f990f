//! ServiceAccount tokens: JSON Web Tokens that this server signs and recognises (AS-58, AS-65).
//!
//! The claims are upstream's (`pkg/serviceaccount/claims.go`); signatures are ES256. What a claim means, and whether the
//! objects it names still exist, is decided in `service_account`.

use std::{
    collections::HashMap,
    fmt, io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use parking_lot::Mutex;
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use store::private::{self, PrivateError};
use tokio_rustls::rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};

use crate::tls::write_private;

/// Who signs tokens, and whom they are for unless somebody else is named. The name under which programs in pods know
/// the API server, as on most clusters.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Longer credentials are none of ours; ours are below 2 kB unless many audiences are asked for.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Tokens whose signature was checked lately. Checking one takes about as long as serving a request.
const VERIFIED_MAX: usize = 1024;
/// What comes before the point in a SubjectPublicKeyInfo of a P-256 key (RFC 5480).
const P256_INFO_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// What a token says. Members that are absent are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    #[serde(default)]
    pub aud: Vec<String>,
    pub exp: i64,
    #[serde(default)]
    pub iat: i64,
    pub iss: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jti: String,
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: Kubernetes,
    #[serde(default)]
    pub nbf: i64,
    pub sub: String,
}

/// Which ServiceAccount a token stands for, and whose end ends it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Kubernetes {
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    pub serviceaccount: Reference,
    /// When clients should have asked for a new token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reference {
    #[serde(default)]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// Signs tokens and recognises its own.
pub struct TokenIssuer {
    key: EcdsaKeyPair,
    key_id: String,
    random: SystemRandom,
    /// By digest, so that no token is kept in memory.
    verified: Mutex<HashMap<[u8; 32], Claims>>,
}

/// Why there is no issuer, or no token.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// The key cannot be read, or could have been by others.
    #[error(transparent)]
    Private(#[from] PrivateError),
    #[error("write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}` does not hold a P-256 key in PKCS #8", path.display())]
    Key { path: PathBuf },
    #[error("make a key for ServiceAccount tokens")]
    Generate,
    #[error("sign a token")]
    Sign,
}

impl TokenIssuer {
    /// Reads the key kept at `path`, or makes one there that only its owner may read. Tokens outlive a restart that way.
    pub fn load_or_create(path: &Path) -> Result<Self, IssuerError> {
        if let Some(pem) = private::read(path)? {
            let key = PrivatePkcs8KeyDer::from_pem_slice(&pem).ok();
            return key
                .and_then(|key| Self::from_pkcs8(key.secret_pkcs8_der()))
                .ok_or_else(|| IssuerError::Key { path: path.to_owned() });
        }
        let key = rcgen::KeyPair::generate().map_err(|_| IssuerError::Generate)?;
        write_private(path, key.serialize_pem().as_bytes())
            .map_err(|source| IssuerError::Write { path: path.to_owned(), source })?;
        Self::from_pkcs8(&key.serialize_der()).ok_or(IssuerError::Generate)
    }

    /// An issuer whose tokens end with the process.
    pub fn ephemeral() -> Result<Self, IssuerError> {
        let key = rcgen::KeyPair::generate().map_err(|_| IssuerError::Generate)?;
        Self::from_pkcs8(&key.serialize_der()).ok_or(IssuerError::Generate)
    }

    fn from_pkcs8(key: &[u8]) -> Option<Self> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key, &random).ok()?;
        let mut info = P256_INFO_PREFIX.to_vec();
        info.extend_from_slice(key.public_key().as_ref());
        let key_id = BASE64.encode(Sha256::digest(&info));
        Some(Self { key, key_id, random, verified: Mutex::default() })
    }

    pub(super) fn sign(&self, claims: &Claims) -> Result<String, IssuerError> {
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let claims = serde_json::to_vec(claims).map_err(|_| IssuerError::Sign)?;
        let mut token = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims));
        let signature = self.key.sign(&self.random, token.as_bytes()).map_err(|_| IssuerError::Sign)?;
        token.push('.');
        token.push_str(&BASE64.encode(signature.as_ref()));
        Ok(token)
    }

    /// What a token says, if it was signed here. Whether it is still valid is another question.
    pub(super) fn verify(&self, token: &str) -> Option<Claims> {
        if token.len() > TOKEN_BYTES_MAX || token.split('.').count() != 3 {
            return None;
        }
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(claims) = self.verified.lock().get(&digest) {
            return Some(claims.clone());
        }
        let claims = self.check(token)?;
        let mut verified = self.verified.lock();
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(digest, claims.clone());
        Some(claims)
    }

    fn check(&self, token: &str) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header: Header = serde_json::from_slice(&BASE64.decode(header).ok()?).ok()?;
        // The algorithm is ours, whatever the token would like: "none" and the like are no choice.
        if header.alg != "ES256" {
            return None;
        }
        let signature = BASE64.decode(signature).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .ok()?;
        let claims: Claims = serde_json::from_slice(&BASE64.decode(claims).ok()?).ok()?;
        (claims.iss == ISSUER).then_some(claims)
    }

    /// The public key, for those who check tokens themselves (`/openid/v1/jwks`).
    pub(crate) fn key_set(&self) -> Value {
        // An uncompressed point: one byte that says so, then x and y.
        let point = self.key.public_key().as_ref();
        let (x, y) = point.get(1..).unwrap_or_default().split_at(32.min(point.len().saturating_sub(1)));
        json!({"keys": [{
            "use": "sig",
            "kty": "EC",
            "kid": self.key_id,
            "crv": "P-256",
            "alg": "ES256",
            "x": BASE64.encode(x),
            "y": BASE64.encode(y),
        }]})
    }
}

/// Where to find the public key (`/.well-known/openid-configuration`).
pub(crate) fn discovery_document() -> Value {
    json!({
        "issuer": ISSUER,
        "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

#[derive(Deserialize)]
struct Header {
    alg: String,
}

impl fmt::Debug for TokenIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenIssuer").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, sync::LazyLock};

    use proptest::prelude::*;

    use super::*;

    fn claims() -> Claims {
        Claims {
            aud: vec![ISSUER.to_owned()],
            exp: 2,
            iat: 1,
            iss: ISSUER.to_owned(),
            jti: "j".to_owned(),
            kubernetes: Kubernetes {
                namespace: "ns".to_owned(),
                serviceaccount: Reference { name: "sa".to_owned(), uid: "u".to_owned() },
                ..Kubernetes::default()
            },
            nbf: 1,
            sub: "system:serviceaccount:ns:sa".to_owned(),
        }
    }

    fn payload(token: &str) -> String {
        let part = token.split('.').nth(1).unwrap();
        String::from_utf8(BASE64.decode(part).unwrap()).unwrap()
    }

    #[test]
    fn tokens_say_what_upstreams_say() {
        let token = TokenIssuer::ephemeral().unwrap().sign(&claims()).unwrap();
        assert_eq!(
            payload(&token),
            r#"{"aud":["https://kubernetes.default.svc.cluster.local"],"exp":2,"iat":1,"iss":"https://kubernetes.default.svc.cluster.local","jti":"j","kubernetes.io":{"namespace":"ns","serviceaccount":{"name":"sa","uid":"u"}},"nbf":1,"sub":"system:serviceaccount:ns:sa"}"#
        );
    }

    #[test]
    fn only_untouched_tokens_of_the_same_key_are_recognised() {
        let issuer = TokenIssuer::ephemeral().unwrap();
        let token = issuer.sign(&claims()).unwrap();
        for _ in 0..2 {
            assert_eq!(issuer.verify(&token), Some(claims()), "the second time from memory");
        }
        assert_eq!(TokenIssuer::ephemeral().unwrap().verify(&token), None);
        let parts: Vec<&str> = token.split('.').collect();
        let forged = BASE64.encode(payload(&token).replace("\"sa\"", "\"sb\""));
        let unsigned = BASE64.encode(r#"{"alg":"none"}"#);
        for other in [
            format!("{}.{forged}.{}", parts[0], parts[2]),
            format!("{unsigned}.{}.", parts[1]),
            format!("{unsigned}.{}.{}", parts[1], parts[2]),
            format!("{}.{}", parts[0], parts[1]),
            format!("{token}.x"),
            "x".repeat(TOKEN_BYTES_MAX + 1),
            "..".to_owned(),
            String::new(),
        ] {
            assert_eq!(issuer.verify(&other), None, "{other}");
        }
    }

    proptest! {
        /// Whatever is sent as a token: no panic, and nobody is recognised.
        #[test]
        fn rubbish_is_nobodys_token(parts in proptest::collection::vec("[A-Za-z0-9_=-]{0,40}|\\PC{0,8}", 0..5)) {
            static ISSUER_OF_TESTS: LazyLock<TokenIssuer> = LazyLock::new(|| TokenIssuer::ephemeral().unwrap());
            prop_assert_eq!(ISSUER_OF_TESTS.verify(&parts.join(".")), None);
        }
    }

    #[test]
    fn other_issuers_are_not_recognised() {
        let issuer = TokenIssuer::ephemeral().unwrap();
        let token = issuer.sign(&Claims { iss: "https://elsewhere".to_owned(), ..claims() }).unwrap();
        assert_eq!(issuer.verify(&token), None);
    }

    /// INV-54.
    #[test]
    fn what_is_remembered_is_bounded() {
        let issuer = TokenIssuer::ephemeral().unwrap();
        for at in 0..=VERIFIED_MAX {
            issuer.verified.lock().insert(Sha256::digest(at.to_string()).into(), claims());
        }
        let token = issuer.sign(&claims()).unwrap();
        assert!(issuer.verify(&token).is_some());
        assert_eq!(issuer.verified.lock().len(), 1);
    }

    /// INV-53: the key is its owner's alone, and stays the same.
    #[test]
    fn the_key_is_kept_in_a_private_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("service-account.key");
        let token = TokenIssuer::load_or_create(&path).unwrap().sign(&claims()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(TokenIssuer::load_or_create(&path).unwrap().verify(&token).is_some());
        fs::write(&path, "rubbish").unwrap();
        assert!(matches!(TokenIssuer::load_or_create(&path), Err(IssuerError::Key { .. })));
    }

    #[test]
    fn the_key_set_has_both_coordinates() {
        let set = TokenIssuer::ephemeral().unwrap().key_set();
        let length = |member: &str| BASE64.decode(set["keys"][0][member].as_str().unwrap()).unwrap().len();
        assert_eq!((length("x"), length("y"), length("kid")), (32, 32, 32));
    }
}
