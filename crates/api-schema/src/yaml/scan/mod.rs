//! Characters to tokens, the way libyaml cuts them: YAML 1.1 with simple keys and indentation made explicit.
//!
//! Scalars have a file of their own, `scalars`. The messages are the ones Kubernetes' parser (a port of libyaml) gives, because refused requests quote them.

mod scalars;

use std::collections::VecDeque;

use super::Problem;

/// How deep flow collections and indentation may nest; beyond it [`super::compose`] refuses anyway.
const NESTING_MAX: usize = 10_000;
/// A simple key ends on its line and within this many characters.
const SIMPLE_KEY_MAX: usize = 1024;

/// A place in the document; lines and columns count from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Mark {
    pub(super) index: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) start: Mark,
    pub(super) end: Mark,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TokenKind {
    StreamEnd,
    VersionDirective { major: u8, minor: u8 },
    TagDirective { handle: String, prefix: String },
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    Tag { handle: String, suffix: String },
    Scalar { text: String, plain: bool },
}

/// Something that turns out to be a key once a colon follows.
#[derive(Debug, Clone, Copy)]
struct SimpleKey {
    token_number: usize,
    required: bool,
    mark: Mark,
}

pub(super) struct Scanner {
    chars: Vec<char>,
    mark: Mark,
    tokens: VecDeque<Token>,
    tokens_taken: usize,
    ended: bool,
    /// The column of the innermost block collection, -1 outside of any.
    indent: isize,
    indents: Vec<isize>,
    simple_key_allowed: bool,
    /// One possible key for the block level and one for each flow collection around.
    simple_keys: Vec<Option<SimpleKey>>,
}

impl Scanner {
    pub(super) fn new(text: &str) -> Self {
        Self {
            chars: text.chars().collect(),
            mark: Mark::default(),
            tokens: VecDeque::new(),
            tokens_taken: 0,
            ended: false,
            indent: -1,
            indents: Vec::new(),
            simple_key_allowed: true,
            simple_keys: vec![None],
        }
    }

    /// The next token without taking it. After the end of the stream that token stays.
    pub(super) fn peek(&mut self) -> Result<&Token, Problem> {
        while self.needs_more()? {
            self.fetch()?;
        }
        self.tokens.front().ok_or_else(|| Problem::parser("did not find expected <stream-start>", self.mark))
    }

    pub(super) fn take(&mut self) -> Result<Token, Problem> {
        self.peek()?;
        let at_end = matches!(self.tokens.front(), Some(Token { kind: TokenKind::StreamEnd, .. }));
        let token = if at_end { self.tokens.front().cloned() } else { self.tokens.pop_front() };
        if !at_end {
            self.tokens_taken += 1;
        }
        token.ok_or_else(|| Problem::parser("did not find expected <stream-start>", self.mark))
    }

    /// The first token may still be preceded by a key token that a later colon calls for.
    fn needs_more(&mut self) -> Result<bool, Problem> {
        if self.ended {
            return Ok(false);
        }
        if self.tokens.is_empty() {
            return Ok(true);
        }
        let first = self.tokens_taken;
        match self.simple_keys.iter().position(|key| key.is_some_and(|key| key.token_number == first)) {
            Some(level) => self.is_key_valid(level),
            None => Ok(false),
        }
    }

    fn is_key_valid(&mut self, level: usize) -> Result<bool, Problem> {
        let Some(key) = self.simple_keys.get(level).copied().flatten() else { return Ok(false) };
        if key.mark.line < self.mark.line || key.mark.index + SIMPLE_KEY_MAX < self.mark.index {
            if key.required {
                return Err(Problem::scanner("could not find expected ':'", key.mark, self.mark));
            }
            self.simple_keys[level] = None;
            return Ok(false);
        }
        Ok(true)
    }

    fn at(&self, ahead: usize) -> char {
        self.chars.get(self.mark.index + ahead).copied().unwrap_or('\0')
    }

    fn in_flow(&self) -> bool {
        self.simple_keys.len() > 1
    }

    fn skip(&mut self) {
        self.mark.index += 1;
        self.mark.column += 1;
    }

    fn read(&mut self, into: &mut String) {
        into.push(self.at(0));
        self.skip();
    }

    /// Takes a line break of any spelling; the usual ones become a line feed.
    fn read_break(&mut self, into: &mut String) {
        match self.at(0) {
            '\r' if self.at(1) == '\n' => {
                self.mark.index += 2;
                into.push('\n');
            }
            '\r' | '\n' | '\u{85}' => {
                self.mark.index += 1;
                into.push('\n');
            }
            other => {
                self.mark.index += 1;
                into.push(other);
            }
        }
        self.mark.line += 1;
        self.mark.column = 0;
    }

    fn skip_break(&mut self) {
        self.read_break(&mut String::new());
    }

    fn push(&mut self, kind: TokenKind, start: Mark) {
        self.tokens.push_back(Token { kind, start, end: self.mark });
    }

    /// A token of the next `length` characters.
    fn indicator(&mut self, kind: TokenKind, length: usize) {
        let start = self.mark;
        for _ in 0..length {
            self.skip();
        }
        self.push(kind, start);
    }

    fn error<T>(&self, message: &'static str, context: Mark) -> Result<T, Problem> {
        Err(Problem::scanner(message, context, self.mark))
    }

    fn fetch(&mut self) -> Result<(), Problem> {
        self.skip_to_next_token();
        self.unroll_indent(self.mark.column as isize);
        let blank_after = |scanner: &Self, ahead| is_blank_or_end(scanner.at(ahead));
        let at_line_start = self.mark.column == 0;
        match self.at(0) {
            '\0' if self.mark.index >= self.chars.len() => self.end_stream(),
            '%' if at_line_start => self.directive(),
            '-' if at_line_start && self.is_document_indicator('-') => {
                self.document_indicator(TokenKind::DocumentStart)
            }
            '.' if at_line_start && self.is_document_indicator('.') => self.document_indicator(TokenKind::DocumentEnd),
            '[' => self.flow_start(TokenKind::FlowSequenceStart),
            '{' => self.flow_start(TokenKind::FlowMappingStart),
            ']' => self.flow_end(TokenKind::FlowSequenceEnd),
            '}' => self.flow_end(TokenKind::FlowMappingEnd),
            ',' => self.flow_entry(),
            '-' if blank_after(self, 1) => self.block_entry(),
            '?' if self.in_flow() || blank_after(self, 1) => self.key(),
            ':' if self.in_flow() || blank_after(self, 1) => self.value(),
            '*' => self.anchor(TokenKind::Alias),
            '&' => self.anchor(TokenKind::Anchor),
            '!' => self.tag(),
            '|' if !self.in_flow() => self.block_scalar(true),
            '>' if !self.in_flow() => self.block_scalar(false),
            '\'' => self.flow_scalar(true),
            '"' => self.flow_scalar(false),
            first if self.starts_plain(first) => self.plain_scalar(),
            _ => self.error("found character that cannot start any token", self.mark),
        }
    }

    fn starts_plain(&self, first: char) -> bool {
        let next = self.at(1);
        match first {
            '-' => !is_blank(next),
            '?' | ':' => !self.in_flow() && !is_blank_or_end(next),
            ',' | '[' | ']' | '{' | '}' | '#' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => false,
            other => !is_blank_or_end(other),
        }
    }

    fn is_document_indicator(&self, c: char) -> bool {
        (0..3).all(|ahead| self.at(ahead) == c) && is_blank_or_end(self.at(3))
    }

    /// White space, comments and line breaks between tokens.
    fn skip_to_next_token(&mut self) {
        loop {
            if self.mark.column == 0 && self.at(0) == '\u{feff}' {
                self.skip();
            }
            while self.at(0) == ' ' || ((self.in_flow() || !self.simple_key_allowed) && self.at(0) == '\t') {
                self.skip();
            }
            self.skip_comment();
            if !is_break(self.at(0)) {
                return;
            }
            self.skip_break();
            if !self.in_flow() {
                self.simple_key_allowed = true;
            }
        }
    }

    fn skip_comment(&mut self) {
        if self.at(0) == '#' {
            while !is_break_or_end(self.at(0)) {
                self.skip();
            }
        }
    }

    fn skip_blanks(&mut self) {
        while is_blank(self.at(0)) {
            self.skip();
        }
    }

    fn save_simple_key(&mut self) -> Result<(), Problem> {
        if !self.simple_key_allowed {
            return Ok(());
        }
        let required = !self.in_flow() && self.indent == self.mark.column as isize;
        let token_number = self.tokens_taken + self.tokens.len();
        self.remove_simple_key()?;
        if let Some(slot) = self.simple_keys.last_mut() {
            *slot = Some(SimpleKey { token_number, required, mark: self.mark });
        }
        Ok(())
    }

    fn remove_simple_key(&mut self) -> Result<(), Problem> {
        let key = self.simple_keys.last_mut().and_then(Option::take);
        match key {
            Some(key) if key.required => self.error("could not find expected ':'", key.mark),
            _ => Ok(()),
        }
    }

    /// Opens a block collection at `column` if one is not open there, before token `number` or at the end.
    fn roll_indent(
        &mut self,
        column: usize,
        number: Option<usize>,
        kind: TokenKind,
        mark: Mark,
    ) -> Result<(), Problem> {
        if self.in_flow() || self.indent >= column as isize {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column as isize;
        if self.indents.len() > NESTING_MAX {
            return self.error("exceeded max depth of 10000", self.mark);
        }
        let token = Token { kind, start: mark, end: mark };
        match number {
            Some(number) => self.tokens.insert(number.saturating_sub(self.tokens_taken), token),
            None => self.tokens.push_back(token),
        }
        Ok(())
    }

    fn unroll_indent(&mut self, column: isize) {
        while !self.in_flow() && self.indent > column {
            self.push(TokenKind::BlockEnd, self.mark);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn end_stream(&mut self) -> Result<(), Problem> {
        if self.mark.column != 0 {
            self.mark.column = 0;
            self.mark.line += 1;
        }
        self.unroll_indent(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        self.push(TokenKind::StreamEnd, self.mark);
        self.ended = true;
        Ok(())
    }

    fn document_indicator(&mut self, kind: TokenKind) -> Result<(), Problem> {
        self.unroll_indent(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        self.indicator(kind, 3);
        Ok(())
    }

    fn flow_start(&mut self, kind: TokenKind) -> Result<(), Problem> {
        self.save_simple_key()?;
        self.simple_keys.push(None);
        if self.simple_keys.len() > NESTING_MAX {
            return self.error("exceeded max depth of 10000", self.mark);
        }
        self.simple_key_allowed = true;
        self.indicator(kind, 1);
        Ok(())
    }

    fn flow_end(&mut self, kind: TokenKind) -> Result<(), Problem> {
        self.remove_simple_key()?;
        if self.in_flow() {
            self.simple_keys.pop();
        }
        self.simple_key_allowed = false;
        self.indicator(kind, 1);
        Ok(())
    }

    fn flow_entry(&mut self) -> Result<(), Problem> {
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.indicator(TokenKind::FlowEntry, 1);
        Ok(())
    }

    fn block_entry(&mut self) -> Result<(), Problem> {
        if !self.in_flow() {
            if !self.simple_key_allowed {
                return self.error("block sequence entries are not allowed in this context", self.mark);
            }
            self.roll_indent(self.mark.column, None, TokenKind::BlockSequenceStart, self.mark)?;
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.indicator(TokenKind::BlockEntry, 1);
        Ok(())
    }

    fn key(&mut self) -> Result<(), Problem> {
        if !self.in_flow() {
            if !self.simple_key_allowed {
                return self.error("mapping keys are not allowed in this context", self.mark);
            }
            self.roll_indent(self.mark.column, None, TokenKind::BlockMappingStart, self.mark)?;
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = !self.in_flow();
        self.indicator(TokenKind::Key, 1);
        Ok(())
    }

    fn value(&mut self) -> Result<(), Problem> {
        let level = self.simple_keys.len() - 1;
        if self.is_key_valid(level)?
            && let Some(key) = self.simple_keys[level].take()
        {
            let token = Token { kind: TokenKind::Key, start: key.mark, end: key.mark };
            self.tokens.insert(key.token_number.saturating_sub(self.tokens_taken), token);
            let number = Some(key.token_number);
            self.roll_indent(key.mark.column, number, TokenKind::BlockMappingStart, key.mark)?;
            self.simple_key_allowed = false;
        } else {
            if !self.in_flow() {
                if !self.simple_key_allowed {
                    return self.error("mapping values are not allowed in this context", self.mark);
                }
                self.roll_indent(self.mark.column, None, TokenKind::BlockMappingStart, self.mark)?;
            }
            self.simple_key_allowed = !self.in_flow();
        }
        self.indicator(TokenKind::Value, 1);
        Ok(())
    }

    fn directive(&mut self) -> Result<(), Problem> {
        self.unroll_indent(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        self.skip();
        let mut name = String::new();
        while is_word(self.at(0)) {
            self.read(&mut name);
        }
        if name.is_empty() {
            return self.error("could not find expected directive name", start);
        }
        if !is_blank_or_end(self.at(0)) {
            return self.error("found unexpected non-alphabetical character", start);
        }
        let kind = match name.as_str() {
            "YAML" => self.version_directive(start)?,
            "TAG" => self.tag_directive(start)?,
            _ => return self.error("found unknown directive name", start),
        };
        self.push(kind, start);
        self.skip_blanks();
        self.skip_comment();
        if !is_break_or_end(self.at(0)) {
            return self.error("did not find expected comment or line break", start);
        }
        if is_break(self.at(0)) {
            self.skip_break();
        }
        Ok(())
    }

    fn version_directive(&mut self, start: Mark) -> Result<TokenKind, Problem> {
        self.skip_blanks();
        let major = self.version_number(start)?;
        if self.at(0) != '.' {
            return self.error("did not find expected digit or '.' character", start);
        }
        self.skip();
        Ok(TokenKind::VersionDirective { major, minor: self.version_number(start)? })
    }

    fn version_number(&mut self, start: Mark) -> Result<u8, Problem> {
        let mut digits = String::new();
        while self.at(0).is_ascii_digit() {
            if digits.len() == 2 {
                return self.error("found extremely long version number", start);
            }
            self.read(&mut digits);
        }
        match digits.parse() {
            Ok(number) => Ok(number),
            Err(_) => self.error("did not find expected version number", start),
        }
    }

    fn tag_directive(&mut self, start: Mark) -> Result<TokenKind, Problem> {
        self.skip_blanks();
        let handle = self.tag_handle(true, start)?;
        if !is_blank(self.at(0)) {
            return self.error("did not find expected whitespace", start);
        }
        self.skip_blanks();
        let prefix = self.tag_uri("", start)?;
        if !is_blank_or_end(self.at(0)) {
            return self.error("did not find expected whitespace or line break", start);
        }
        Ok(TokenKind::TagDirective { handle, prefix })
    }

    fn anchor(&mut self, kind: fn(String) -> TokenKind) -> Result<(), Problem> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        self.skip();
        let mut name = String::new();
        while is_word(self.at(0)) {
            self.read(&mut name);
        }
        let ends = is_blank_or_end(self.at(0)) || "?:,]}%@`".contains(self.at(0));
        if name.is_empty() || !ends {
            return self.error("did not find expected alphabetic or numeric character", start);
        }
        self.push(kind(name), start);
        Ok(())
    }

    fn tag(&mut self) -> Result<(), Problem> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        let (handle, suffix) = if self.at(1) == '<' {
            self.skip();
            self.skip();
            let uri = self.tag_uri("", start)?;
            if self.at(0) != '>' {
                return self.error("did not find the expected '>'", start);
            }
            self.skip();
            (String::new(), uri)
        } else {
            let handle = self.tag_handle(false, start)?;
            if handle.len() > 1 && handle.ends_with('!') {
                let suffix = self.tag_uri("", start)?;
                (handle, suffix)
            } else {
                match self.tag_uri(&handle, start)? {
                    // A lone exclamation mark is a tag of its own.
                    suffix if suffix.is_empty() => (String::new(), handle),
                    suffix => ("!".to_owned(), suffix),
                }
            }
        };
        if !is_blank_or_end(self.at(0)) {
            return self.error("did not find expected whitespace or line break", start);
        }
        self.push(TokenKind::Tag { handle, suffix }, start);
        Ok(())
    }

    fn tag_handle(&mut self, in_directive: bool, start: Mark) -> Result<String, Problem> {
        if self.at(0) != '!' {
            return self.error("did not find expected '!'", start);
        }
        let mut handle = String::new();
        self.read(&mut handle);
        while is_word(self.at(0)) {
            self.read(&mut handle);
        }
        if self.at(0) == '!' {
            self.read(&mut handle);
        } else if in_directive && handle != "!" {
            return self.error("did not find expected '!'", start);
        }
        Ok(handle)
    }

    /// The rest of a tag; `head` is a handle that turned out to be the beginning of the suffix.
    fn tag_uri(&mut self, head: &str, start: Mark) -> Result<String, Problem> {
        let mut uri: Vec<u8> = head.bytes().skip(1).collect();
        let mut found = !head.is_empty();
        while is_word(self.at(0)) || ";/?:@&=+$,.!~*'()[]%".contains(self.at(0)) {
            if self.at(0) == '%' {
                match (self.at(1).to_digit(16), self.at(2).to_digit(16)) {
                    (Some(high), Some(low)) => uri.push((high * 16 + low) as u8),
                    _ => return self.error("did not find URI escaped octet", start),
                }
                self.skip();
                self.skip();
            } else {
                uri.push(self.at(0) as u8);
            }
            self.skip();
            found = true;
        }
        if !found {
            return self.error("did not find expected tag URI", start);
        }
        match String::from_utf8(uri) {
            Ok(uri) => Ok(uri),
            Err(_) => self.error("found an incorrect leading UTF-8 octet", start),
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_break_or_end(c: char) -> bool {
    c == '\0' || is_break(c)
}

fn is_blank_or_end(c: char) -> bool {
    is_blank(c) || is_break_or_end(c)
}
