//! One sync at a time: text in, text out.

mod catalogue;
mod recovery;
mod text;
