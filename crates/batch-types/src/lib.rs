//! The rules of Job, CronJob and Pod: defaulting, validation, mutability, index sets, selectors, names.
//!
//! Pure: no clock, no randomness, nothing read from outside; time and identifiers are arguments, and the time zone database
//! is built in (CJ-49). How objects travel and are stored is elsewhere (`api-schema`, `apiserver`), and so is what
//! controllers decide (`batch-plan`).
//!
//! Objects arrive as JSON in canonical form. Defaulting and the strategies change that JSON in place; validation reads
//! typed structs, so that a rule can only ask for fields that exist.

pub mod annotation_json;
pub mod constants;
pub mod cron;
pub mod cronjob;
pub mod equality;
pub mod field;
pub mod gates;
pub mod index_ranges;
pub mod job;
mod json;
pub mod meta;
pub mod names;
pub mod pod;
pub mod resource_names;
pub mod selector;
