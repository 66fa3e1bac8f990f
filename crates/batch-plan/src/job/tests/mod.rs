//! Plan tests: text in, text out.
//!
//! `text` reads and writes the little language, `vectors` holds the tables of the specification's appendix A, `world` is
//! an API server and a shell in memory, in which `scenarios` (appendix B), `regressions` (REG-…) and `properties` run.

mod properties;
mod regressions;
mod scenarios;
mod shell;
mod text;
mod vectors;
mod world;
