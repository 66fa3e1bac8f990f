//! Values as YAML text, the way Kubernetes answers `Accept: application/yaml`: block style, keys in natural order,
//! strings plain where they can be, long lines folded.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::resolve::is_plain_text;
use super::scan::is_break;
use crate::json::encode_number;

const INDENT: usize = 2;
/// Lines are folded at the first space beyond this column.
const WIDTH: usize = 80;
/// Longer keys are marked by a question mark.
const SIMPLE_KEY_MAX: usize = 128;

/// The value as one YAML document.
pub fn to_string(value: &Value) -> String {
    let mut emitter = Emitter { out: String::new(), column: 0, indent: None, whitespace: true, indention: true };
    emitter.node(value, Context::Root);
    emitter.write_indent_at(0);
    emitter.out
}

/// Where a node stands, which decides about indentation and folding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Context {
    Root,
    Item,
    Key,
    Value,
}

struct Emitter {
    out: String,
    column: usize,
    /// The column of the innermost collection.
    indent: Option<usize>,
    /// The last character written was white space.
    whitespace: bool,
    /// Nothing but indentation and dashes is on this line yet.
    indention: bool,
}

impl Emitter {
    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn new_line(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    fn write_indent(&mut self) {
        self.write_indent_at(self.indent.unwrap_or_default());
    }

    fn write_indent_at(&mut self, indent: usize) {
        if !self.indention || self.column > indent || (self.column == indent && !self.whitespace) {
            self.new_line();
        }
        while self.column < indent {
            self.put(' ');
        }
        self.whitespace = true;
        self.indention = true;
    }

    fn indicator(&mut self, text: &str, needs_space: bool, is_space: bool, is_indention: bool) {
        if needs_space && !self.whitespace {
            self.put(' ');
        }
        self.out.push_str(text);
        self.column += text.chars().count();
        self.whitespace = is_space;
        self.indention = self.indention && is_indention;
    }

    fn node(&mut self, value: &Value, context: Context) {
        match value {
            Value::Object(members) if !members.is_empty() => self.mapping(members),
            Value::Array(items) if !items.is_empty() => self.sequence(items, context),
            Value::Object(_) => self.empty("{", "}"),
            Value::Array(_) => self.empty("[", "]"),
            Value::String(text) => self.text(text, context),
            Value::Null => self.plain("null", context),
            Value::Bool(value) => self.plain(if *value { "true" } else { "false" }, context),
            Value::Number(number) => {
                let mut text = Vec::new();
                encode_number(number, &mut text);
                self.plain(&String::from_utf8_lossy(&text), context);
            }
        }
    }

    fn empty(&mut self, open: &str, close: &str) {
        self.indicator(open, true, true, false);
        self.indicator(close, false, false, false);
    }

    /// Runs `write` one level further in.
    fn indented(&mut self, indent: usize, write: impl FnOnce(&mut Self)) {
        let outer = self.indent.replace(indent);
        write(self);
        self.indent = outer;
    }

    fn mapping(&mut self, members: &Map<String, Value>) {
        let mut members: Vec<_> = members.iter().collect();
        members.sort_by(|(a, _), (b, _)| natural(a, b));
        self.indented(self.indent.map_or(0, |indent| indent + INDENT), |emitter| {
            for (key, value) in members {
                emitter.write_indent();
                if key.len() <= SIMPLE_KEY_MAX && !key.contains(is_break) {
                    emitter.text(key, Context::Key);
                    emitter.indicator(":", false, false, false);
                } else {
                    emitter.indicator("?", true, false, true);
                    emitter.text(key, Context::Value);
                    emitter.write_indent();
                    emitter.indicator(":", true, false, true);
                }
                emitter.node(value, Context::Value);
            }
        });
    }

    /// The dashes of a member's sequence stand at the column of its key.
    fn sequence(&mut self, items: &[Value], context: Context) {
        let indentless = context == Context::Value && !self.indention;
        let indent = match self.indent {
            None => 0,
            Some(indent) if indentless => indent,
            Some(indent) => indent + INDENT,
        };
        self.indented(indent, |emitter| {
            for item in items {
                emitter.write_indent();
                emitter.indicator("-", true, false, true);
                emitter.node(item, Context::Item);
            }
        });
    }

    fn text(&mut self, text: &str, context: Context) {
        let facts = Facts::of(text);
        let in_key = context == Context::Key;
        let wanted = if text.contains('\n') {
            Style::Literal
        } else if is_plain_text(text) {
            Style::Plain
        } else {
            Style::Double
        };
        let style = match wanted {
            _ if in_key && facts.multiline => Style::Double,
            Style::Plain if facts.plain => Style::Plain,
            Style::Plain if facts.single => Style::Single,
            Style::Literal if facts.block && !in_key => Style::Literal,
            _ => Style::Double,
        };
        let indent = self.indent.map_or(INDENT, |indent| indent + INDENT);
        self.indented(indent, |emitter| match style {
            Style::Plain => emitter.plain(text, context),
            Style::Single => emitter.single(text, !in_key),
            Style::Double => emitter.double(text, !in_key),
            Style::Literal => emitter.literal(text),
        });
    }

    fn plain(&mut self, text: &str, context: Context) {
        if !self.whitespace && !text.is_empty() {
            self.put(' ');
        }
        self.folded(text, context != Context::Key, |emitter, c| emitter.put(c));
        self.whitespace = false;
        self.indention = false;
    }

    fn single(&mut self, text: &str, folds: bool) {
        self.indicator("'", true, false, false);
        let last = text.chars().count().saturating_sub(1);
        let mut spaces = false;
        let mut breaks = false;
        let chars: Vec<char> = text.chars().collect();
        for (at, &c) in chars.iter().enumerate() {
            if c == ' ' {
                let foldable = at > 0 && at < last && chars.get(at + 1) != Some(&' ');
                if folds && !spaces && self.column > WIDTH && foldable {
                    self.write_indent();
                } else {
                    self.put(c);
                }
                spaces = true;
            } else if is_break(c) {
                if !breaks && c == '\n' {
                    self.new_line();
                }
                self.new_line();
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                if c == '\'' {
                    self.put('\'');
                }
                self.put(c);
                self.indention = false;
                spaces = false;
                breaks = false;
            }
        }
        self.indicator("'", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    /// Text without line breaks, folded at single spaces.
    fn folded(&mut self, text: &str, folds: bool, put: impl Fn(&mut Self, char)) {
        let mut spaces = false;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c == ' ' && folds && !spaces && self.column > WIDTH && chars.peek() != Some(&' ') {
                self.write_indent();
            } else {
                put(self, c);
            }
            if c != ' ' {
                self.indention = false;
            }
            spaces = c == ' ';
        }
    }

    fn double(&mut self, text: &str, folds: bool) {
        self.indicator("\"", true, false, false);
        let chars: Vec<char> = text.chars().collect();
        let mut spaces = false;
        for (at, &c) in chars.iter().enumerate() {
            if !is_printable(c) || is_break(c) || matches!(c, '"' | '\\') {
                let escaped = escaped(c);
                self.column += escaped.len();
                self.out.push_str(&escaped);
                spaces = false;
            } else if c == ' ' {
                if folds && !spaces && self.column > WIDTH && at > 0 && at + 1 < chars.len() {
                    self.write_indent();
                    if chars.get(at + 1) == Some(&' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(c);
                }
                spaces = true;
            } else {
                self.put(c);
                spaces = false;
            }
        }
        self.indicator("\"", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn literal(&mut self, text: &str) {
        self.indicator("|", true, false, false);
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.indicator(&INDENT.to_string(), false, false, false);
        }
        let mut from_end = text.chars().rev();
        let (last, before) = (from_end.next(), from_end.next());
        if !last.is_some_and(is_break) {
            self.indicator("-", false, false, false);
        } else if before.is_none_or(is_break) {
            self.indicator("+", false, false, false);
        }
        self.new_line();
        self.indention = true;
        self.whitespace = true;
        let mut breaks = true;
        for c in text.chars() {
            if is_break(c) {
                self.new_line();
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                self.put(c);
                self.indention = false;
                breaks = false;
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

/// Which styles can hold a text.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    multiline: bool,
    plain: bool,
    single: bool,
    block: bool,
}

impl Facts {
    fn of(text: &str) -> Self {
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut multiline, mut special) = (false, false);
        let (mut break_space, mut space_break) = (false, false);
        let mut before: Option<char> = None;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let blank_after = chars.peek().is_none_or(|next| matches!(next, ' ' | '\t'));
            let blank_before = before.is_none_or(|c| matches!(c, ' ' | '\t' | '\0') || is_break(c));
            indicators |= match c {
                '#' => blank_before,
                ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => {
                    before.is_none()
                }
                ':' => blank_after,
                '?' | '-' => before.is_none() && blank_after,
                _ => false,
            };
            special |= !is_printable(c);
            multiline |= is_break(c);
            break_space |= c == ' ' && before.is_some_and(is_break);
            space_break |= is_break(c) && before == Some(' ');
            before = Some(c);
        }
        let at_edge = |c: char| c == ' ' || is_break(c);
        let edges = text.starts_with(at_edge) || text.ends_with(at_edge);
        Self {
            multiline,
            plain: !(edges || multiline || indicators || break_space || space_break || special),
            single: !(break_space || space_break || special),
            block: !(text.is_empty() || text.ends_with(' ') || space_break || special),
        }
    }
}

/// What may stand in a document as it is. Characters beyond the basic plane count as unprintable to upstream's emitter.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && c != '\u{feff}'
}

fn escaped(c: char) -> String {
    let short = match c {
        '\0' => '0',
        '\x07' => 'a',
        '\x08' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\x0b' => 'v',
        '\x0c' => 'f',
        '\r' => 'r',
        '\x1b' => 'e',
        '"' | '\\' => c,
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            let mut text = String::new();
            let code = u32::from(c);
            let _ = match code {
                0..=0xff => write!(text, "\\x{code:02X}"),
                0x100..=0xffff => write!(text, "\\u{code:04X}"),
                _ => write!(text, "\\U{code:08X}"),
            };
            return text;
        }
    };
    format!("\\{short}")
}

/// The order of keys: letters after everything else, runs of digits by their number.
fn natural(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = (0..a.len().min(b.len())).find(|&at| a[at] != b[at]) else { return a.len().cmp(&b.len()) };
    match (a[at].is_alphabetic(), b[at].is_alphabetic()) {
        (true, true) => return a[at].cmp(&b[at]),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // Within a number, what comes before the difference counts as well; zeros at its beginning do not.
    let mut prefix = 0;
    if a[at] == '0' || b[at] == '0' {
        let digits = a[..at].iter().rev().take_while(|c| c.is_ascii_digit());
        prefix = i64::from(digits.clone().any(|c| *c != '0'));
    }
    let run = |chars: &[char]| {
        let digits = chars[at..].iter().take_while(|c| c.is_ascii_digit());
        digits.fold((prefix, 0), |(number, length): (i64, usize), c| {
            let digit = i64::from(c.to_digit(10).unwrap_or_default());
            (number.wrapping_mul(10).wrapping_add(digit), length + 1)
        })
    };
    run(&a).cmp(&run(&b)).then(a[at].cmp(&b[at]))
}
