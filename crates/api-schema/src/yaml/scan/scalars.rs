//! Scalars in their five spellings: plain, in single or double quotes, literal and folded blocks.

use super::{Mark, Scanner, Token, TokenKind, is_blank, is_blank_or_end, is_break, is_break_or_end};
use crate::yaml::Problem;

impl Scanner {
    pub(super) fn block_scalar(&mut self, literal: bool) -> Result<(), Problem> {
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        let start = self.mark;
        self.skip();
        let (keeps, strips, increment) = self.block_scalar_header(start)?;
        let mut indent = increment.map_or(0, |increment| self.indent.max(0) as usize + increment);
        let mut text = String::new();
        let mut leading_break = String::new();
        let mut trailing_breaks = String::new();
        self.block_scalar_breaks(&mut indent, &mut trailing_breaks, start)?;
        let mut after_blank = false;
        while self.mark.column == indent && self.mark.index < self.chars.len() {
            let starts_blank = is_blank(self.at(0));
            // Folding joins two lines unless either is indented further.
            if !literal && leading_break.starts_with('\n') && !after_blank && !starts_blank {
                if trailing_breaks.is_empty() {
                    text.push(' ');
                }
            } else {
                text.push_str(&leading_break);
            }
            leading_break.clear();
            text.push_str(&trailing_breaks);
            trailing_breaks.clear();
            after_blank = starts_blank;
            while !is_break_or_end(self.at(0)) {
                self.read(&mut text);
            }
            if is_break(self.at(0)) {
                self.read_break(&mut leading_break);
            }
            self.block_scalar_breaks(&mut indent, &mut trailing_breaks, start)?;
        }
        if !strips {
            text.push_str(&leading_break);
        }
        if keeps {
            text.push_str(&trailing_breaks);
        }
        self.push(TokenKind::Scalar { text, plain: false }, start);
        Ok(())
    }

    /// What follows `|` or `>`: whether trailing breaks are kept, or all are stripped, and an explicit indentation.
    fn block_scalar_header(&mut self, start: Mark) -> Result<(bool, bool, Option<usize>), Problem> {
        let (mut keeps, mut strips, mut increment) = (false, false, None);
        for _ in 0..2 {
            match self.at(0) {
                '+' if !keeps && !strips => keeps = true,
                '-' if !keeps && !strips => strips = true,
                '0' if increment.is_none() => return self.error("found an indentation indicator equal to 0", start),
                digit if digit.is_ascii_digit() && increment.is_none() => {
                    increment = digit.to_digit(10).map(|digit| digit as usize);
                }
                _ => break,
            }
            self.skip();
        }
        self.skip_blanks();
        self.skip_comment();
        if !is_break_or_end(self.at(0)) {
            return self.error("did not find expected comment or line break", start);
        }
        if is_break(self.at(0)) {
            self.skip_break();
        }
        Ok((keeps, strips, increment))
    }

    /// Indentation and empty lines; finds out the indentation of the scalar if it is not known yet.
    fn block_scalar_breaks(&mut self, indent: &mut usize, breaks: &mut String, start: Mark) -> Result<(), Problem> {
        let mut widest = 0;
        loop {
            let within = |column: usize, indent: usize| indent == 0 || column < indent;
            while within(self.mark.column, *indent) && self.at(0) == ' ' {
                self.skip();
            }
            widest = widest.max(self.mark.column);
            if within(self.mark.column, *indent) && self.at(0) == '\t' {
                return self.error("found a tab character where an indentation space is expected", start);
            }
            if !is_break(self.at(0)) {
                break;
            }
            self.read_break(breaks);
        }
        if *indent == 0 {
            *indent = widest.max((self.indent + 1).max(1) as usize);
        }
        Ok(())
    }

    pub(super) fn flow_scalar(&mut self, single: bool) -> Result<(), Problem> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        let quote = self.at(0);
        self.skip();
        let mut text = String::new();
        loop {
            if self.mark.column == 0 && (self.is_document_indicator('-') || self.is_document_indicator('.')) {
                return self.error("found unexpected document indicator", start);
            }
            if self.mark.index >= self.chars.len() {
                return self.error("found unexpected end of stream", start);
            }
            let mut joined = false;
            while !is_blank_or_end(self.at(0)) {
                let (here, next) = (self.at(0), self.at(1));
                if single && here == '\'' && next == '\'' {
                    text.push('\'');
                    self.skip();
                    self.skip();
                } else if here == quote {
                    break;
                } else if !single && here == '\\' && is_break(next) {
                    self.skip();
                    self.skip_break();
                    joined = true;
                    break;
                } else if !single && here == '\\' {
                    self.escape(&mut text, start)?;
                } else {
                    self.read(&mut text);
                }
            }
            if self.at(0) == quote {
                break;
            }
            let space = self.white_space(joined, None)?;
            space.fold_into(&mut text);
        }
        self.skip();
        self.push(TokenKind::Scalar { text, plain: false }, start);
        Ok(())
    }

    fn escape(&mut self, text: &mut String, start: Mark) -> Result<(), Problem> {
        let digits = match self.at(1) {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            simple => {
                let meant = match simple {
                    '0' => '\0',
                    'a' => '\x07',
                    'b' => '\x08',
                    't' | '\t' => '\t',
                    'n' => '\n',
                    'v' => '\x0b',
                    'f' => '\x0c',
                    'r' => '\r',
                    'e' => '\x1b',
                    ' ' | '"' | '\'' | '\\' => simple,
                    'N' => '\u{85}',
                    '_' => '\u{a0}',
                    'L' => '\u{2028}',
                    'P' => '\u{2029}',
                    _ => return self.error("found unknown escape character", start),
                };
                text.push(meant);
                self.skip();
                self.skip();
                return Ok(());
            }
        };
        self.skip();
        self.skip();
        let mut code: u32 = 0;
        for ahead in 0..digits {
            let Some(digit) = self.at(ahead).to_digit(16) else {
                return self.error("did not find expected hexdecimal number", start);
            };
            code = code.wrapping_mul(16).wrapping_add(digit);
        }
        match char::from_u32(code) {
            Some(c) => text.push(c),
            None => return self.error("found invalid Unicode character escape code", start),
        }
        for _ in 0..digits {
            self.skip();
        }
        Ok(())
    }

    pub(super) fn plain_scalar(&mut self) -> Result<(), Problem> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        let mut end = start;
        let indent = (self.indent + 1).max(0) as usize;
        let mut text = String::new();
        let mut space = Space::default();
        loop {
            if self.mark.column == 0 && (self.is_document_indicator('-') || self.is_document_indicator('.')) {
                break;
            }
            if self.at(0) == '#' {
                break;
            }
            while !is_blank_or_end(self.at(0)) {
                let here = self.at(0);
                let ends = (here == ':' && is_blank_or_end(self.at(1))) || (self.in_flow() && ",?[]{}".contains(here));
                if ends {
                    break;
                }
                std::mem::take(&mut space).fold_into(&mut text);
                self.read(&mut text);
                end = self.mark;
            }
            if !is_blank(self.at(0)) && !is_break(self.at(0)) {
                break;
            }
            space = self.white_space(false, Some((indent, start)))?;
            if !self.in_flow() && self.mark.column < indent {
                break;
            }
        }
        if space.has_break() {
            self.simple_key_allowed = true;
        }
        self.tokens.push_back(Token { kind: TokenKind::Scalar { text, plain: true }, start, end });
        Ok(())
    }

    /// Blanks and line breaks inside a scalar. `plain` is the indentation that a plain scalar must not reach by tabs.
    fn white_space(&mut self, joined: bool, plain: Option<(usize, Mark)>) -> Result<Space, Problem> {
        let mut space = Space { joined, ..Space::default() };
        while is_blank(self.at(0)) || is_break(self.at(0)) {
            let on_new_line = space.has_break();
            if is_break(self.at(0)) {
                let into = if on_new_line { &mut space.trailing_breaks } else { &mut space.leading_break };
                let mut text = std::mem::take(into);
                self.read_break(&mut text);
                if on_new_line {
                    space.trailing_breaks = text;
                } else {
                    space.leading_break = text;
                    space.blanks.clear();
                }
                space.joined = true;
            } else if on_new_line {
                if let Some((_, start)) = plain.filter(|(indent, _)| self.mark.column < *indent && self.at(0) == '\t') {
                    return self.error("found a tab character that violates indentation", start);
                }
                self.skip();
            } else {
                self.read(&mut space.blanks);
            }
        }
        Ok(space)
    }
}

/// White space inside a scalar that spans lines.
#[derive(Debug, Default)]
struct Space {
    blanks: String,
    leading_break: String,
    trailing_breaks: String,
    /// A new line has begun, be it after a break or after an escaped one.
    joined: bool,
}

impl Space {
    fn has_break(&self) -> bool {
        self.joined
    }

    /// One line break is a space, more of them are one less.
    fn fold_into(self, text: &mut String) {
        if !self.joined {
            text.push_str(&self.blanks);
        } else if self.leading_break.starts_with('\n') {
            text.push_str(if self.trailing_breaks.is_empty() { " " } else { &self.trailing_breaks });
        } else {
            text.push_str(&self.leading_break);
            text.push_str(&self.trailing_breaks);
        }
    }
}
