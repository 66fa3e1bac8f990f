//! The shape of every served kind: one table of types that drives JSON decoding and canonical encoding,
//! protobuf, strategic merge patches, server-side apply and OpenAPI.
//!
//! | module | what it does |
//! |---|---|
//! | [`registry`](fn@registry) | finds a [`Type`] by name or kind |
//! | [`json`] | bytes or values to canonical values with Go's error texts, and values to bytes |
//! | [`protobuf`] | the same values from and to upstream's protobuf encoding |
//! | [`yaml`] | YAML to JSON and values to YAML |
//! | [`Quantity`], [`time`] | the two scalar formats with rules of their own |
//!
//! Pure: no IO, no clock. What values *mean* (defaults, validation) is deliberately elsewhere, in `batch-types`
//! and in the API server's strategies.

mod go;
pub mod json;
mod model;
pub mod protobuf;
mod quantity;
mod registry;
pub mod time;
pub mod yaml;

pub use model::{Embed, Field, ListType, PatchStrategy, Shape, Type};
pub use quantity::{Format, Quantity, QuantityError};
pub use registry::{Registry, registry};

/// The `kind` and `apiVersion` of a body; empty where the body does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeMeta {
    pub api_version: String,
    pub kind: String,
}
