//! One test for each answer, on objects as real servers write them, with the exact text.

mod cronjobs;
mod jobs;
mod objects;
mod pods;
mod properties;
