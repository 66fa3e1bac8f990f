//! The whole system in one thread, under one seed, in virtual time: the store on a disk that forgets, the real API
//! server, all controllers, nodes with the real pod lifecycle over make-believe processes, careless users, and faults
//! wherever there can be any. The same seed gives the same bytes.
//!
//! A run has three parts: trouble, healing, rest. While there is trouble, users and faults do what the [`Scenario`] says;
//! then everything is healed, and the system must come to rest in bounded time; then the whole history is judged, and so
//! is the state it came to rest in.
//!
//! Deliberately elsewhere: the judge of histories (`testkit::oracle`), every fault at every call (`testkit`'s harness),
//! all interleavings of small worlds (`model`), and real processes (`tally soak`). Nothing here decides how Jobs behave.

pub mod clock;
pub mod counters;
pub mod history;
mod judge;
mod manager;
mod network;
mod node;
pub mod random;
pub mod run;
pub mod scenario;
mod server;
mod settled;
pub mod shapes;
pub mod shrink;
mod users;
pub mod weather;
mod world;

pub use run::{Outcome, Verdict, run};
pub use scenario::Scenario;
